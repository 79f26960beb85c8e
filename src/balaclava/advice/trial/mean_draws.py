"""Plausible means of a log's arms, given noisy averages.

Averages of K arms scatter more than the true means: even equal arms have averages that differ, by
K - 1 units of Q = sum w (y - average)^2, with w = 1 / error^2. Means drawn around averages scatter
more still. So we draw how far the means are apart from what Q tells about it.

If the means are r apart, r^2 = sum w (mean - centre)^2, then Q is noncentral chi squared with K - 1
degrees of freedom and noncentrality r^2. Inverting its distribution function gives a confidence
distribution of r: P(r <= x) = P(Q' >= Q | x). It has exact coverage for every r, and an atom at
r = 0, all arms equal, of the p-value of Cochran's test.

Given r, the direction is that of a random-effects draw: effects with the variance tau^2 that makes
r^2 the expected sum (DerSimonian and Laird 1986), times a factor for each arm. Either all arms
differ, or most are alike and a few stand out; how well each fits the averages decides how often it
is drawn. The draw is then scaled to have r exactly.
"""

from typing import NamedTuple

import numpy as np

from balaclava._core.extras import require_extra

# Factors of tau^2, and how likely each is if all arms differ, or if most are alike. Without the
# latter the interval missed in half of the logs with one arm far ahead of 19 equal ones.
_EFFECT_SCALES = np.array([0.01, 1.0, 100.0])
_SCALE_CHANCES = np.array([[0.02, 0.96, 0.02], [0.9, 0.05, 0.05]])
# Fewest arms for the warning that one is far ahead: with three, intervals hold (docs/figures.md).
_SEVERAL_ARMS, _TEST_LEVEL = 5, 0.05
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, fill [0, 1] evenly, however many there are
_RADIUS_GRID = 400  # points on which the confidence distribution is inverted
_RADIUS_REACH = 8.0  # standard deviations of the distance of the averages, on each side
_FAR_APART = 1_000.0  # from this distance on it is normal with standard deviation 1


class ArmAverages(NamedTuple):
    """Averages of independent arms, with their standard errors."""

    means: np.ndarray
    errors: np.ndarray

    @property
    def centre(self) -> float:
        return float(np.average(self.means, weights=self.errors**-2.0))

    @property
    def distance(self) -> float:
        """Root of Cochran's Q."""
        return float(np.sqrt((((self.means - self.centre) / self.errors) ** 2).sum()))

    @property
    def equal(self) -> float:
        """The p-value of Cochran's test that all means are equal.

        >>> ArmAverages(np.array([1.0, 1.1, 0.9]), np.full(3, 0.1)).equal.__round__(3)
        0.368
        """
        require_extra("scipy", "drawing worlds from a log")
        from scipy.special import chdtrc

        return float(chdtrc(self.means.size - 1, self.distance**2))

    @property
    def one_ahead(self) -> bool:
        """Whether the highest average is far above others that look alike, each test at 5 %.

        >>> ArmAverages(np.array([1.0, 1.1, 0.9, 1.0, 1.5]), np.full(5, 0.1)).one_ahead
        True
        """
        require_extra("scipy", "drawing worlds from a log")
        from scipy.special import ndtr

        top, size = int(self.means.argmax()), self.means.size
        if size < _SEVERAL_ARMS:
            return False
        others = ArmAverages(np.delete(self.means, top), np.delete(self.errors, top))
        error = np.hypot(self.errors[top], (others.errors**-2.0).sum() ** -0.5)
        chance = size * ndtr((others.centre - self.means[top]) / error)  # Bonferroni
        return bool(others.equal > _TEST_LEVEL > chance)

    def draw(self, count: int, rng: np.random.Generator, *, ties: bool = True) -> np.ndarray:
        """Plausible means [draw, arm]: all equal in a share `equal` of the draws, if `ties`.

        Draws of r are spread evenly over its distribution, which lowers the error of averages.
        """
        levels = (rng.random() + _GOLDEN * np.arange(count)) % 1
        radius = self._radius(levels if ties else self.equal + (1 - self.equal) * levels)
        effects = self._effects(radius, rng)
        weights = self.errors**-2.0
        centres = effects @ weights / weights.sum()
        offsets = effects - centres[:, None]
        lengths = np.sqrt((offsets**2) @ weights)
        scale = np.divide(radius, lengths, out=np.zeros(count), where=lengths > 0)
        return centres[:, None] + scale[:, None] * offsets

    def _radius(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles of the confidence distribution of r."""
        from scipy.special import chndtr, ndtri

        distance = self.distance
        if distance > _FAR_APART:
            return np.maximum(distance + ndtri(levels), 0.0)
        grid = np.linspace(
            max(distance - _RADIUS_REACH, 0.0), distance + _RADIUS_REACH, _RADIUS_GRID
        )
        below = 1 - chndtr(distance**2, self.means.size - 1, grid**2)
        radius = np.interp(levels, np.maximum.accumulate(below), grid)
        return np.where(levels > self.equal, radius, 0.0)

    def _effects(self, radius: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Means by the random-effects model, given the scatter of the effects."""
        noise, weights = self.errors**2, self.errors**-2.0
        scatter = radius**2 / (weights.sum() - (weights**2).sum() / weights.sum())
        spread = noise + scatter[:, None, None] * _EFFECT_SCALES[:, None]  # [draw, scale, arm]
        centre = (self.means / spread[:, 1]).sum(axis=1) / (1 / spread[:, 1]).sum(axis=1)
        fit = -(np.log(spread) + (self.means - centre[:, None, None]) ** 2 / spread) / 2
        chances = np.log(_SCALE_CHANCES)
        fits = [np.logaddexp.reduce(fit + each[:, None], axis=1).sum(axis=1) for each in chances]
        # The largest of log weights with Gumbel noise is a draw in proportion to the weights.
        alike = np.argmax(np.stack(fits) + rng.gumbel(size=(2, radius.size)), axis=0)
        fit = fit + chances[alike][:, :, None]
        chosen = np.argmax(fit + rng.gumbel(size=fit.shape), axis=1)
        scatter = scatter[:, None] * _EFFECT_SCALES[chosen]
        precision = 1 / (noise + scatter)
        total = precision.sum(axis=1)
        centre = (precision * self.means).sum(axis=1) / total
        centre = centre + rng.standard_normal(centre.size) / np.sqrt(total)
        pull = noise * precision
        means = pull * centre[:, None] + (1 - pull) * self.means
        return means + np.sqrt(pull * scatter) * rng.standard_normal(means.shape)
