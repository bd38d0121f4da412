"""E11: tuning and its records."""

CODES = {
    "E1120": (
        "a file is no database of records, or is damaged",
        "`--db` names a SQLite database that `mlcc tune` writes. The file is something else, belongs to another "
        "program, or is damaged; it stays as it is. `sqlite3 FILE .recover` may save what is left of a damaged one, "
        "and `mlcc tune --merge` brings that into a new one.",
    ),
    "E1121": (
        "a database cannot be written",
        "The disk is full, or failed. Each record is written as a whole or not at all, so what the database held "
        "before is there still. Free some space and start again: nothing that was recorded is measured again.",
    ),
    "E1122": (
        "a database cannot be opened",
        "There is no such file, its folder does not exist, or you may not read or write it. Reading needs no right to "
        "write; `mlcc tune` does.",
    ),
    "E1123": (
        "a database is of another version",
        "A newer version of mlcc wrote the database, with other tables. It is left as it is, since to guess what its "
        "columns mean could apply the wrong schedule. Tune into a new file, or use the version that wrote it. What "
        "earlier versions wrote is converted when it is opened.",
    ),
    "E1124": (
        "a database is busy",
        "Other processes kept writing to the database for a minute. Several may tune into one file, but not on a "
        "network file system, where locks are not to be trusted: write a file of your own there, and bring them "
        "together with `mlcc tune --merge`.",
    ),
    "W1101": (
        "no record fits a build",
        "A record of `mlcc tune` is for one target, kind of machine, number of threads, level of -O and version of "
        "mlcc, since a schedule that is faster under some conditions may be slower under others. The database has "
        "records for kernels of this module, but for other conditions; the rules schedule them. Tune under these, or "
        "build as it was tuned (`-t`, `-O`, `--threads`).",
    ),
    "W1102": (
        "the script of a record does not fit its kernel",
        "A step of the script was refused, or the database was edited. The rules schedule the kernel, as without a "
        "database. `mlcc tune` makes new records.",
    ),
    "W1103": (
        "a database that is not used",
        "`--db` gives the schedules of `mlcc tune` to builds that schedule kernels: those at -O2 and -O3, and by "
        "pipelines with the pass `auto-schedule`. At -O0 and -O1 loops are compiled as they are written, and a module "
        "that is lowered in part has its schedules already.",
    ),
    "E1130": (
        "a level that schedules nothing",
        "`mlcc tune` looks for schedules that are better than those of the rules, which run at -O2 and -O3. Lower "
        "levels compile kernels as they are written.",
    ),
    "E1131": (
        "there is nothing to tune",
        "The module has no TensorIR function whose loops are left to the rules, or none whose name fits `--kernels`. A "
        "function that somebody has scheduled, or that has the attribute tir.is_scheduled, stays as it is.",
    ),
    "E1132": (
        "a size to measure with is not known",
        "The shapes of a kernel have a symbol. It is measured at one value of it, which `--size NAME=N` gives; the "
        "schedule that is found is used for all values.",
    ),
    "E1134": (
        "a key that names no workload",
        "A workload is known by the structural hash of its kernel; `mlcc tune --list` shows the beginnings of those "
        "that have a proven schedule. Give as much of one as makes it unique.",
    ),
    "E1133": (
        "an unknown design space",
        "`--space` says where candidates come from: `rules` are the choices of mlcc's own rules, `generic` the tilings "
        "of TVM's MetaSchedule, and FILE.mls is a script of yours with `sch.sample_...` steps.",
    ),
    "E1135": (
        "no database of TVM's",
        "`mlcc tune --import FOLDER` reads the two files of MetaSchedule's JSONDatabase, database_workload.json and "
        "database_tuning_record.json, as TVM 0.27 writes them. A line is something else; nothing was added.",
    ),
}
