"""The text builder: what it writes is what LLVM reads, and equal calls write equal text."""

from __future__ import annotations

import math
import re
import struct

import llvmlite.binding as llvm
import pytest

from mlcc.targets.llvm.codegen.ir_text import ModuleText, Value, float_bits, floating, global_name, integer, vector


def sample() -> ModuleText:
    module = ModuleText()
    fn = module.function("i32", "count down", [("i32", "n"), ("ptr", "out")], linkage="")
    n, out = fn.params
    head, body, done = fn.label("head"), fn.label("body"), fn.label("done")
    before = fn.block
    fn.br(head)
    fn.start(head)
    i = fn.phi("i32", [(n, before), (Value("i32", "%next"), body)])
    fn.cond_br(fn.icmp("sgt", i, integer("i32", 0)), body, done)
    fn.start(body)
    fn.line(f"%next = sub i32 {i.ref}, 1")
    fn.store(i, out)
    fn.br(head, module.metadata('!self, !{!"llvm.loop.unroll.disable"}', distinct=True))
    fn.start(done)
    fn.ret(i)
    fn.binary("add", i, i)  # after the end: harmless
    fn.unreachable()
    return module


def verified(module: ModuleText) -> llvm.ModuleRef:
    made = llvm.parse_assembly(module.text(), llvm.create_context())
    made.verify()
    return made


def test_text_is_valid_and_repeatable() -> None:
    made = verified(sample())
    assert [f.name for f in made.functions] == ["count down"]
    assert sample().text() == sample().text()


def test_names_that_need_quotes() -> None:
    assert global_name("mm_relu.1") == "@mm_relu.1"
    assert global_name("1a") == '@"1a"'
    assert global_name('a"b\\') == '@"a\\22b\\5C"'


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324, 1.1])
def test_double_constants_keep_their_bits(value: float) -> None:
    module = ModuleText()
    module.function("double", "f", [], linkage="").ret(floating("double", value))
    spelling = re.search(r"ret double (\S+)", str(verified(module)))
    assert spelling is not None
    read = spelling[1]
    back = struct.unpack(">d", bytes.fromhex(read[2:]))[0] if read.startswith("0x") else float(read)
    assert float_bits(back) == float_bits(value)


def test_strings_and_declarations_come_once() -> None:
    module = ModuleText()
    puts = module.declare("puts", "i32", ["ptr"])
    assert module.declare("puts", "i32", ["ptr"]) == puts
    fn = module.function("void", "f", [], linkage="")
    for text in (b'a"\\\n', b"b", b'a"\\\n'):
        fn.call("i32", puts, [module.string(text)])
    fn.ret()
    text = str(verified(module))
    assert text.count("declare i32 @puts") == 1
    assert text.count("private unnamed_addr constant") == 2


def test_a_definition_takes_the_place_of_a_declaration() -> None:
    module = ModuleText()
    module.declare("helper", "void", [])
    module.function("void", "helper", []).ret()
    verified(module)


def test_splat_extract_and_insert_verify() -> None:
    module = ModuleText()
    fn = module.function("float", "f", [("float", "x"), ("i64", "i")], linkage="")
    x, i = fn.params
    wide = fn.splat(x, 4)
    assert wide.type == vector("float", 4) == "<4 x float>"
    wide = fn.insert(wide, floating("float", 2.0), 1)
    total = fn.binary("fadd", wide, fn.splat(floating("float", 1.0), 4))
    chosen = fn.select(fn.fcmp("olt", total, wide), total, wide)
    fn.ret(fn.extract(chosen, i))
    verified(module)
