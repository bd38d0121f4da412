"""E114: measuring candidates of the tuner."""

CODES = {
    "E1141": (
        "a kernel cannot be measured alone",
        "The tuner runs each kernel by itself, with arguments of its own. This one needs what only the whole program "
        "has: packed functions, pointers, sizes that nobody gave, or a result that is no tensor. Such a kernel keeps "
        "the schedule of the rules.",
    ),
    "E1142": (
        "there is nothing to compare candidates with",
        "Candidates are compared with the schedule that is in use, and their results with those of the unscheduled "
        "function. One of the two cannot be built or run; the message says why.",
    ),
    "E1143": (
        "a cluster has no such machine",
        "Measurements are of one kind of machine, and workers of a Dask cluster say by a resource `mlcc:KEY` which one "
        "they are: `dask worker ... --preload mlcc.tune.measure.dask_worker`. Either none does, or there are several "
        "kinds and none was named, or the last worker of the kind is gone.",
    ),
    "E1144": (
        "Dask is not installed",
        "Measuring on a cluster uses dask.distributed, an optional dependency: pip install 'mlcc[cluster]'. Measuring "
        "on this machine does not need it.",
    ),
    "E1145": (
        "a cluster cannot be reached, or everyone could",
        "Whoever reaches a Dask scheduler can run code on its workers, so beyond this machine only tls:// will do, "
        "with certificates that scheduler, workers and client trust. docs/tune-cluster.md shows how to make them.",
    ),
    "E1146": (
        "a worker has another version of mlcc",
        "A worker of a Dask cluster compiles what it measures, and another version would choose other code, which "
        "records of this version say nothing about. Install the same version of mlcc on all machines.",
    ),
}
