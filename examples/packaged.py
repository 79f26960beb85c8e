"""Real data that ships inside other packages, read without importing them.

`requirements-examples.lock` pins the packages. They are installed without dependencies, because
only their files are read.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
from pathlib import Path

import numpy as np


def packaged_file(package: str, *path: str) -> Path:
    """The path of a file inside an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; run `make examples`, which installs it")
    return Path(spec.submodule_search_locations[0], *path)


def daily_returns(*symbols: str) -> dict[str, np.ndarray]:
    """Daily returns in percent of shares of the S&P 500, 1990 to 2022 (skfolio's data)."""
    path = packaged_file("skfolio", "datasets", "data", "sp500_dataset.csv.gz")
    with gzip.open(path, "rt", newline="") as file:
        prices = list(csv.DictReader(file))
    returns = {}
    for symbol in symbols:
        series = np.array([float(row[symbol]) for row in prices])
        returns[symbol] = 100 * np.diff(series) / series[:-1]
    return returns


def doctor_visits() -> dict[str, np.ndarray]:
    """Outpatient visits in a year, by insurance plan: the RAND experiment (statsmodels' data)."""
    path = packaged_file("statsmodels", "datasets", "randhie", "randhie.csv")
    plans: dict[str, list[float]] = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            share = round(np.expm1(float(row["lncoins"])))
            plan = f"{share} % coinsurance" + (", deductible" if row["idp"] == "1" else "")
            plans.setdefault(plan, []).append(float(row["mdvis"]))
    return {plan: np.array(visits) for plan, visits in sorted(plans.items())}
