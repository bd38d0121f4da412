"""The names that the C language, the headers that a file includes, and the file's own functions take."""

from __future__ import annotations

import re

from mlcc.targets.c.helpers import is_helper
from mlcc.targets.llvm.codegen.libm import LIBM
from mlcc.targets.source.dialect import C_WORDS

_LANGUAGE = """
    restrict _Bool _Complex _Imaginary int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t intptr_t
    uintptr_t ptrdiff_t wchar_t intmax_t uintmax_t max_align_t float_t double_t div_t ldiv_t lldiv_t NULL NAN INFINITY
    HUGE_VAL HUGE_VALF HUGE_VALL SIZE_MAX PTRDIFF_MAX CHAR_BIT MB_LEN_MAX MB_CUR_MAX RAND_MAX EXIT_SUCCESS EXIT_FAILURE
    I errno assert offsetof math_errhandling linux unix i386 complex imaginary
"""
# of math.h, each also with the suffixes f and l; the second half is of POSIX, BSD and GNU
_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax
    fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
    nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
    canonicalize drem exp10 finite fmaxmag fminmag fromfp fromfpx gamma getpayload isinf isnan j0 j1 jn lgamma_r llogb
    nextdown nextup pow10 roundeven scalb setpayload significand sincos totalorder totalordermag ufromfp ufromfpx y0 y1
    yn cabs carg cimag conj cproj creal cacos cacosh casin casinh catan catanh ccos ccosh cexp clog cpow csin csinh
    csqrt ctan ctanh
"""
_OTHER_MATH = "fpclassify isfinite isnormal signbit isgreater isgreaterequal isless islessequal islessgreater \
    isunordered iseqsig issignaling issubnormal iszero signgam fadd fsub fmul fdiv ffma fsqrt daddl dsubl dmull ddivl"
_STDLIB = """
    abort abs atexit atof atoi atol atoll at_quick_exit bsearch calloc div exit free getenv labs ldiv llabs lldiv malloc
    mblen mbstowcs mbtowc qsort quick_exit rand realloc srand strtod strtof strtol strtold strtoll strtoul strtoull
    system wcstombs wctomb aligned_alloc _Exit
    a64l alloca arc4random arc4random_buf arc4random_uniform canonicalize_file_name clearenv drand48 drand48_r ecvt
    ecvt_r erand48 erand48_r fcvt fcvt_r gcvt getloadavg getpt getsubopt grantpt initstate initstate_r jrand48 jrand48_r
    l64a lcong48 lcong48_r lrand48 lrand48_r mkdtemp mkostemp mkostemps mkstemp mkstemps mktemp mrand48 mrand48_r
    nrand48 nrand48_r on_exit posix_memalign posix_openpt ptsname ptsname_r putenv qecvt qecvt_r qfcvt qfcvt_r qgcvt
    qsort_r rand_r random random_r reallocarray realpath rpmatch secure_getenv seed48 seed48_r setenv setstate
    setstate_r srand48 srand48_r srandom srandom_r strfromd strfromf strfroml strtoq strtouq unlockpt unsetenv valloc
    major minor makedev pselect select
"""
_STRING = """
    memchr memcmp memcpy memmove memset strcat strchr strcmp strcoll strcpy strcspn strerror strlen strncat strncmp
    strncpy strpbrk strrchr strspn strstr strtok strxfrm
    basename bcmp bcopy bzero explicit_bzero ffs ffsl ffsll index memccpy memfrob memmem mempcpy memrchr rawmemchr
    rindex sigabbrev_np sigdescr_np stpcpy stpncpy strcasecmp strcasecmp_l strcasestr strchrnul strcoll_l strdup strdupa
    strerrordesc_np strerrorname_np strerror_l strerror_r strfry strlcat strlcpy strncasecmp strncasecmp_l strndup
    strndupa strnlen strsep strsignal strtok_r strverscmp strxfrm_l
"""
_BUILT_IN = """
    fprintf fputc fputs fscanf fwrite printf putc putchar puts scanf snprintf sprintf sscanf vfprintf vfscanf vprintf
    vscanf vsnprintf vsprintf vsscanf isalnum isalpha isascii isblank iscntrl isdigit isgraph islower isprint ispunct
    isspace isupper isxdigit toascii tolower toupper iswalnum iswalpha iswblank iswcntrl iswdigit iswgraph iswlower
    iswprint iswpunct iswspace iswupper iswxdigit towlower towupper imaxabs execl execle execlp execv execve execvp fork
    gettext dgettext dcgettext strfmon strftime setjmp longjmp feclearexcept fegetenv feraiseexcept fesetround
"""  # functions of other headers, whose types GCC knows
_TYPES = """
    blkcnt_t blksize_t caddr_t clock_t clockid_t comparison_fn_t daddr_t dev_t fd_mask fd_set fsblkcnt_t fsfilcnt_t
    fsid_t gid_t id_t ino_t key_t locale_t loff_t mode_t nlink_t off_t pid_t quad_t register_t sigset_t ssize_t
    suseconds_t time_t timer_t u_char u_int u_int16_t u_int32_t u_int64_t u_int8_t u_long u_quad_t u_short uid_t uint
    ulong useconds_t ushort
"""
_FILE = """
    DLTensor DLDevice DLDataType DLDeviceType DLManagedTensor mlcc_packed_fn mlcc_parallel_for_fn memory_range aligned
    allocate release tensor_of data_of pointer_of cell_of cell_of_double double_of check_tensor strides_of strided_range
    overlaps checked_add checked_sub checked_mul packed_slots packed_call cpu_tensor fault fault_count fault_numbers
    filled_text errors error_text NEXT_FAULT abs_i8 abs_i16 abs_i32 abs_i64 atomic_uint atomic_fetch_add
"""
_LOCAL = "result workspace heap code args symbols cells room overflow facts"  # variables whose names are fixed
_MATH_NAMES = frozenset(f"{name}{suffix}" for name in _MATH.split() for suffix in ("", "f", "l"))
WORDS = frozenset({
    *C_WORDS, *LIBM, *_MATH_NAMES, *" ".join((
        _LANGUAGE, _OTHER_MATH, _STDLIB, _STRING, _BUILT_IN, _TYPES, _FILE, _LOCAL
    )).split(),
})  # fmt: skip
_OWN = frozenset(_FILE.split())
_CONSTANT = re.compile(r"constant_\d+")


def is_reserved(name: str) -> bool:
    """Return True for a name that a function or a variable of the program cannot have."""
    return name in WORDS or is_own(name)


def is_own(name: str) -> bool:
    """Return True for a name that a function, a type or a table of the file may have, besides those of the program."""
    return name in _OWN or is_helper(name) or _CONSTANT.fullmatch(name) is not None
