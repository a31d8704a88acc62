"""What a measure found in a model: arrays by size, kept as one npz, and shown in a notebook."""

from __future__ import annotations

import importlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from sightline.analysis.images import NATIVE, Size
from sightline.analysis.measures.base import MeasuredQuantity, measure_classes
from sightline.errors import InputError, require_known
from sightline.io.read import check_file


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """What one measure found in one model.

    Attributes:
        measure: its name.
        model: what the model is called.
        encoding: the model's.
        sizes: (height, width) in pixels, (0, 0) where each image had its own; in the order that was asked for.
        names: of the images at each size, in the order of the arrays' axis `image`.
        arrays: by size, those of the measure's `quantities` by name.
        about: what else is known, to be read: of the model, the data, the options of the measure.
    """

    measure: str
    model: str
    encoding: str
    sizes: tuple[Size, ...]
    names: Mapping[Size, tuple[str, ...]]
    arrays: Mapping[Size, Mapping[str, np.ndarray]]
    about: Mapping[str, Any]

    def __repr__(self) -> str:
        """One line; the arrays are not printed."""
        sizes = ", ".join(map(size_name, self.sizes))
        images = max((len(names) for names in self.names.values()), default=0)
        return f"Analysis({self.measure} of {self.model}, {images} images at {sizes})"

    @property
    def quantities(self) -> Mapping[str, MeasuredQuantity]:
        """What the arrays say, by name."""
        return measure_classes()[self.measure].quantities

    def __getitem__(self, name: str) -> np.ndarray:
        """The array of that name at the only size.

        Raises:
            InputError: there are several sizes (`arrays[size][name]` has each), or no such array.
        """
        if len(self.sizes) != 1:
            raise InputError(f"{name}: measured at {len(self.sizes)} sizes (expected arrays[size][name])")
        if name not in self.arrays[self.sizes[0]]:
            raise InputError(f"{self.measure} has no {name} (has: {', '.join(self.arrays[self.sizes[0]])})")
        return self.arrays[self.sizes[0]][name]

    def flat(self) -> dict[str, np.ndarray]:
        """The arrays by `NAME@HEIGHTxWIDTH` (`NAME@native`), with `about` as text: what an npz holds."""
        flat = {f"{name}@{size_name(size)}": array for size in self.sizes for name, array in self.arrays[size].items()}
        record = {
            "measure": self.measure,
            "model": self.model,
            "encoding": self.encoding,
            "sizes": [list(size) for size in self.sizes],
            "names": [list(self.names[size]) for size in self.sizes],
            "about": dict(self.about),
        }
        return {**flat, "record": np.array(json.dumps(record))}

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """What `flat` wrote into an npz.

        Raises:
            InputError: it is none; names the file.
        """
        path = Path(path)
        check_file(path, "an analysis")
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            record = json.loads(str(arrays.pop("record")))
            sizes = tuple((int(height), int(width)) for height, width in record["sizes"])
            by_size: dict[Size, dict[str, np.ndarray]] = {size: {} for size in sizes}
            named = {size_name(size): size for size in sizes}
            for key, array in arrays.items():
                name, _, size = key.rpartition("@")
                by_size[named[size]][name] = array
            names = {size: tuple(map(str, of)) for size, of in zip(sizes, record["names"], strict=True)}
            found = cls(record["measure"], record["model"], record["encoding"], sizes, names, by_size, record["about"])
        except (OSError, LookupError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
            raise InputError(f"{path}: is not an analysis that `sightline analyse` wrote") from None
        require_known(f"{path}: measure", found.measure, measure_classes())
        for name in (name for of in by_size.values() for name in of):
            require_known(f"{path}: array", name, found.quantities)
        return found

    def _repr_html_(self) -> str:
        """Drawn when a notebook shows it, by a room above this one, which is asked for by name."""
        return importlib.import_module("sightline.reports.analysis_page").shown([self])


def size_name(size: Size) -> str:
    """A size as files and rows name it: `224x224`, or `native`."""
    return "native" if size == NATIVE else f"{size[0]}x{size[1]}"
