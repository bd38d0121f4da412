"""Diagnostic codes: command line and files."""

CODES: dict[str, tuple[str, str]] = {
    "E0001": (
        "a file cannot be read",
        "The file named on the command line, or in a text, does not exist, is a folder, or may not be read. "
        "Paths on the command line are taken from the current folder, paths inside a file from that file's folder.",
    ),
    "E0002": (
        "a file cannot be written",
        "The folder is missing or not writable, or the disk is full. Outputs are written whole or not at all: an "
        "earlier file of that name is still as it was.",
    ),
    "E0003": (
        "not a sound .npz file",
        "The file is no .npz, is cut off or damaged, or holds Python objects, which mlcc never loads. "
        "Write it with numpy.savez(path, name=array, ...).",
    ),
    "E0004": (
        "arrays do not fit the function",
        "An array that the function needs is missing from the .npz, or one is there that no parameter has the name of. "
        "Arrays are matched to parameters by name.",
    ),
    "E0005": (
        "no function of that name",
        "The module or artifact has no public function of the name given with --func.",
    ),
    "E0006": (
        "no such diagnostic code",
        "`mlcc explain` takes a code as messages show it in brackets, such as E0312.",
    ),
    "E0007": (
        "nested too deeply",
        "Expressions, statements or functions are nested deeper than mlcc follows. Programs that people or tools write "
        "are far from this bound; split the expression, or the function.",
    ),
}
