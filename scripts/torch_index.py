"""Print the pip option for CPU-only PyTorch wheels, a tenth of the usual size, or nothing if it is unreachable."""

import urllib.request

INDEX = "https://download.pytorch.org/whl/cpu"
try:
    with urllib.request.urlopen(f"{INDEX}/torch/", timeout=5):
        print(f"--extra-index-url {INDEX}")
except OSError:
    pass
