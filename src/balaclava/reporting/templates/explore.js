// Simulates when a slider moves: the page of the new settings replaces the figures.
"use strict";
(() => {
  const form = document.querySelector(".sliders"), summary = document.getElementById("summary");
  const pause = 150; // milliseconds without a move before a simulation starts
  const patience = 1500; // milliseconds without an answer before the page says that it simulates
  let timer = 0, notice = 0, running = null;
  document.body.classList.add("live");

  async function simulate() {
    running?.abort();
    const mine = (running = new AbortController());
    const main = document.querySelector("main");
    main.setAttribute("aria-busy", "true");
    clearTimeout(notice);
    notice = setTimeout(() => {
      summary.textContent = "Simulating. The first delay is compiled for some seconds.";
    }, patience);
    try {
      const answer = await fetch("?" + new URLSearchParams(new FormData(form)), {
        signal: mine.signal,
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      const page = new DOMParser().parseFromString(text, "text/html");
      main.replaceWith(page.querySelector("main"));
      document.querySelector(".facts").textContent = page.querySelector(".facts").textContent;
      clearTimeout(notice);
      summary.textContent = page.getElementById("summary").textContent;
      dispatchEvent(new Event("redrawn"));
    } catch (error) {
      if (mine !== running) return; // a later move replaced this one
      clearTimeout(notice);
      main.removeAttribute("aria-busy");
      summary.textContent =
        error instanceof TypeError ? "balaclava explore has stopped; start it again." : error.message;
    }
  }

  for (const slider of form.querySelectorAll("input")) {
    const texts = JSON.parse(slider.dataset.texts);
    const output = slider.parentElement.querySelector("output");
    slider.addEventListener("input", () => {
      output.textContent = texts[slider.value];
      slider.setAttribute("aria-valuetext", texts[slider.value]);
      clearTimeout(timer);
      timer = setTimeout(simulate, pause);
    });
  }
  form.addEventListener("submit", event => {
    event.preventDefault();
    simulate();
  });
})();
