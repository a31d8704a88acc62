"""How metrics, numbers, times and names are written: a metric that is not known here by its own name and unit."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.results.rows import FRACTION, MetricValue

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

_TITLES = {
    "top1": "top-1 accuracy", "top5": "top-5 accuracy", "top1_within_group": "top-1 accuracy within the group",
    "top1_answered": "top-1 accuracy of the surest images", "top1_in_bin": "top-1 accuracy",
}  # fmt: skip
# Of metrics whose name alone would not be read as it is meant.
_NAMES = {
    "miou": "mean IoU", "iou": "IoU", "foreground_iou": "IoU of the foreground", "boundary_iou": "boundary IoU",
    "ece": "expected calibration error", "ece_30": "expected calibration error of 30 bins",
    "ece_adaptive": "expected calibration error of bins of as many images each",
    "ece_sigmoid": "expected calibration error of sigmoids", "nll": "negative log-likelihood", "brier": "Brier score",
    "temperature": "fitted temperature", "temperature_sigmoid": "fitted temperature of sigmoids",
    "nll_tempered": "negative log-likelihood at the fitted temperature",
    "brier_tempered": "Brier score at the fitted temperature",
    "ece_tempered": "expected calibration error at the fitted temperature",
    "ece_sigmoid_tempered": "expected calibration error of sigmoids at their fitted temperature",
    "aurc": "area under risk by coverage",
    "few_shot_top1": "top-1 accuracy of a few shots", "few_shot_l2": "l2 of a few shots",
    "few_shot_smallest_class": "images of the smallest class to take shots of",
    "knn_top1": "top-1 accuracy of nearest neighbours", "knn_train_images": "images to find neighbours among",
    "linear_probe_top1": "top-1 accuracy of a linear probe", "linear_probe_l2": "l2 of the linear probe",
    "linear_probe_train_images": "images that the linear probe learned from",
    "fgsm_top1": "top-1 accuracy under FGSM", "fgsm_top5": "top-5 accuracy under FGSM",
    "pgd_top1": "top-1 accuracy under PGD", "pgd_top5": "top-5 accuracy under PGD",
    "flops": "operations of an image",
    "lens_miou": "logit lens, mean IoU", "image_miou": "mean IoU of an image", "l1": "L1 distance", "l2": "L2 distance",
    "jsd": "Jensen-Shannon divergence", "rope_fourier": "Fourier picture of RoPE", "cka": "CKA",
    "box_ap": "box AP", "box_ap50": "box AP50", "box_ap75": "box AP75", "box_ar100": "box AR100",
}  # fmt: skip
# They say of the same answers what others say, and are left to the page.
ASIDE = (
    "top5", "top1_within_group", "top1_answered", "top1_in_bin", "confidence", "ece_30", "ece_adaptive", "ece_sigmoid",
    "nll", "brier", "aurc", "few_shot_l2", "knn_train_images", "linear_probe_l2", "linear_probe_train_images",
    "fgsm_top5", "pgd_top5", "temperature", "temperature_sigmoid", "nll_tempered", "brier_tempered",
    "ece_sigmoid_tempered",
)  # fmt: skip
# What the highest value is called, and the lowest where that is the better one.
EXTREME = {"higher": "highest", "lower": "lowest"}
# Of a size, whether all runs that are spoken of were trained at it alone, or saw it among others.
SEEN = {"trained": ", as trained", "seen": ", seen in training", "": ""}


def title(metric: str) -> str:
    """ "top-1 accuracy": a metric in words."""
    return _TITLES.get(metric) or _NAMES.get(metric) or printable(metric.replace("_", " "))


def short(metric: str) -> str:
    """The same where nothing else is spoken of: "accuracy"."""
    return "accuracy" if metric in _TITLES else title(metric)


def capital(text: str) -> str:
    """The text with a capital."""
    return text[:1].upper() + text[1:]


def heading(one: MetricValue) -> str:
    """ "Top-1 accuracy in %"."""
    return capital(title(one.metric)) + (f" in {unit(one.unit)}" if one.unit else "")


def axis(one: MetricValue) -> str:
    """ "top-1 accuracy (%)"."""
    return title(one.metric) + (f" ({unit(one.unit)})" if one.unit else "")


def unit(name: str) -> str:
    """The unit in which numbers are shown: fractions are, in percent."""
    return "%" if name == FRACTION else printable(name)


def scaled(value: float, unit: str) -> float:
    """The value as it is shown: fractions in percent."""
    return 100 * value if unit == FRACTION else value


def number(value: float, unit: str, sign: str = "") -> str:
    """ "93.8" for a fraction, and four digits of anything else; `sign` is "+" for a difference."""
    return f"{scaled(value, unit):{sign}{'.1f' if unit == FRACTION else '.4g'}}"


def quantity(value: float, name: str) -> str:
    """ "93.8 %" or "3.21 px", with a blank that does not break."""
    return f"{number(value, name)}\u00a0{unit(name)}".rstrip("\u00a0")


def percent(fraction: float) -> str:
    """ "93.8 %"."""
    return quantity(fraction, FRACTION)


def limits(one: MetricValue) -> tuple[str, ...]:
    """Where a value lies with 95 %, as two numbers; none where that is not known."""
    return tuple(number(limit, one.unit) for limit in one.limits() or ())


def interval(limits: Sequence[str]) -> str:
    """ "[92.6, 94.8]"."""
    return f"[{limits[0]},\u00a0{limits[1]}]" if limits else ""


def with_interval(one: MetricValue) -> str:
    """ "93.8 % [92.6, 94.8]"."""
    return f"{quantity(one.value, one.unit)} {interval(limits(one))}".rstrip()


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def span(values: Sequence[object]) -> str:
    """ "16" or "16 to 64"."""
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def printable(text: object) -> str:
    """`text` on one line without control characters, which neither a terminal nor XML should be handed."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def duration(seconds: float) -> str:
    """ "0.4 s", "12 s", "3 min 05 s" or "2 h 07 min"; an en dash for 0."""
    if seconds <= 0:
        return DASH
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}\u00a0s"
    if minutes < 60:
        return f"{minutes}\u00a0min\u00a0{rest:02d}\u00a0s"
    hours, minutes = divmod(round(minutes + rest / 60), 60)
    return f"{hours}\u00a0h\u00a0{minutes:02d}\u00a0min"
