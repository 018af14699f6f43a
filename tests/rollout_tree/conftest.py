"""Puts the fakes of this folder within reach of its tests; test folders are no packages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
