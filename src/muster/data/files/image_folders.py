"""Folders of images: FOLDER/client/class/*.png, or FOLDER/class/*.png of a single client.

Rows are bytes (channels, height, width), classes are named after their folders. Gray images have
one channel, all others three; transparency is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError
from ...base.lazy import Image, pl
from ...base.untrusted_files import TABLE, open_file
from ...federation import Inputs
from ...federation.inputs import PIXELS
from .assembly import natural_key
from .manifest import MANIFEST, Options
from .table_reader import read_error
from .tabular import Block

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Size = tuple[int, ...]  # height and width

ENDINGS = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")  # the only formats that Pillow may read
COLUMN_SETTINGS = (
    *("label", "client", "features", "split", "categories", "missing"),
    *("text", "tokenizer", "length", "pad"),
)
GRAY = ("1", "L", "LA")
DEEP = ("I", "I;16", "I;16B", "I;16L", "F")  # more than a byte for each pixel


def is_image(path: Path) -> bool:
    """Return True if a file is named like an image."""
    return path.suffix.lower() in ENDINGS


def holds_images(place: Path) -> bool:
    """Return True if a folder has only folders, and images in them."""
    if not place.is_dir():
        return False
    inside = list_folder(place)
    if not inside or not all(path.is_dir() for path in inside):
        return False
    return any(is_image(file) for depth in ("*/*", "*/*/*") for file in place.glob(depth))


def list_folder(folder: Path) -> list[Path]:
    """Return the files and folders in a folder, without hidden files, notes (.md) and manifests."""
    inside = [p for p in folder.iterdir() if not p.name.startswith(".") and p.suffix != ".md"]
    return sorted((p for p in inside if p.name != MANIFEST), key=lambda p: natural_key(p.name))


def read_image_blocks(place: Path, options: Options) -> tuple[Options, list[Block]]:
    """Read the images of each client; return the settings with their classes, and the blocks."""
    for name in COLUMN_SETTINGS:
        if getattr(options, name) is not None:
            raise MusterError(f"{name}: images have no columns; leave it out for these")
    if options.targets == "numbers" or options.scale not in (None, "none"):
        raise MusterError("targets, scale: images have classes, and are scaled to 0 to 1")
    alone, found = find_clients(place)
    names = sorted({name for classes in found.values() for name in classes}, key=natural_key)
    if options.classes is None:
        options = replace(options, classes=tuple(names))
    blocks: list[Block] = []
    first: tuple[Path, Size] | None = None
    for client, classes in found.items():
        files = [file for inside in classes.values() for file in inside]
        if not files:
            raise MusterError(f"{place / client}: holds no image; every client needs one")
        x, first = read_images(files, first, options.resize)
        labels = [name for name, inside in classes.items() for _ in inside]
        where = str(place if alone else place / client)
        blocks.append(Block(client, where, x, pl.Series("class", labels)))
    return options, blocks


def find_clients(place: Path) -> tuple[bool, dict[str, dict[str, list[Path]]]]:
    """Find the images of each class of each client; True if it is a single client's folder."""
    folders = list_folder(place)
    direct = [any(is_image(path) for path in folder.iterdir()) for folder in folders]
    if all(direct):
        return True, {place.resolve().name: find_classes(place)}
    if any(direct):
        one, other = folders[direct.index(True)], folders[direct.index(False)]
        raise MusterError(
            f"{one}: holds images, and {other} none; give folders as client/class/*.png, or as "
            "class/*.png of a single client"
        )
    return False, {folder.name: find_classes(folder) for folder in folders}


def find_classes(folder: Path) -> dict[str, list[Path]]:
    """Find the images of each class, one folder each."""
    found: dict[str, list[Path]] = {}
    for inner in list_folder(folder):
        if not inner.is_dir():
            raise MusterError(f"{inner}: allowed here: a folder of images for each class")
        found[inner.name] = list_folder(inner)
        for file in found[inner.name]:
            if not is_image(file) or not file.is_file():
                raise MusterError(f"{file}: allowed here: {', '.join(ENDINGS)} images; move it")
    return found


def read_images(
    files: Sequence[Path], first: tuple[Path, Size] | None, resize: Size | None
) -> tuple[NDArray[np.uint8], tuple[Path, Size]]:
    """Read images as one array, all of the shape of the first, which is returned with its file."""
    array: NDArray[np.uint8] | None = None
    for i, file in enumerate(files):
        image = read_image(file, resize)
        first = first or (file, image.shape)
        if image.shape != first[1]:
            raise MusterError(
                f"{file}: {describe_shape(image.shape)}, and {first[0]} "
                f"{describe_shape(first[1])} (height x width); give images of one kind and size, "
                "or resize = [height, width]"
            )
        if array is None:
            array = np.empty((len(files), *image.shape), np.uint8)
        array[i] = image
    assert array is not None
    assert first is not None
    return array, first


def describe_shape(shape: Size) -> str:
    """Describe the shape of an image in words."""
    channels, height, width = shape
    return f"{'gray' if channels == 1 else 'colour'} {height} x {width}"


def read_image(file: Path, resize: Size | None) -> NDArray[np.uint8]:
    """Read an image as bytes, (channels, height, width)."""
    try:
        with open_file(file, TABLE, follow=True) as raw, Image.open(raw, formats=FORMATS) as image:
            if image.mode in DEEP:
                raise MusterError(f"{file}: more than 8 bits for each pixel; save it with 8")
            picture: Picture = image.convert("L" if image.mode in GRAY else "RGB")
    except MusterError:
        raise
    except Exception as error:  # Pillow raises many
        if "cannot identify" in str(error):
            error = ValueError("no PNG or JPEG image")
        raise read_error(file, error) from None
    if resize is not None:
        picture = picture.resize((resize[1], resize[0]))
    array = np.asarray(picture)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def takes_images(inputs: Inputs) -> bool:
    """Return True if a model's rows are images."""
    return inputs.kind == PIXELS and len(inputs.image or inputs.shape) == 3


def read_new_images(path: Path, inputs: Inputs) -> tuple[NDArray[Any], list[str] | None, list[str]]:
    """Read new images for a trained model: one, a folder of them, or a folder for each class.
    Return the images, their classes where those are known, and their files."""
    shape = inputs.image or inputs.shape
    inside = [path] if path.is_file() else list_folder(path)
    labels = None
    if any(p.is_dir() for p in inside):
        found = find_classes(path)
        labels = [name for name, files in found.items() for _ in files]
        inside = [file for files in found.values() for file in files]
    for file in inside:
        if not is_image(file):
            raise MusterError(f"{file}: allowed here: {', '.join(ENDINGS)} images; move it")
    if not inside:
        raise MusterError(f"{path}: holds no image; give at least one")
    resize = shape[1:] if inputs.resized else None
    x, (first, found_shape) = read_images(inside, None, resize)
    if found_shape != shape:
        raise MusterError(
            f"{first}: {describe_shape(found_shape)}; the model was trained on "
            f"{describe_shape(shape)} (height x width)"
        )
    base = path.parent if path.is_file() else path
    return x, labels, [str(file.relative_to(base)) for file in inside]
