"""Pictures of graphs: well-formed, without overlaps, the same each time, and fast for thousands of nodes."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.report.graph_picture import count_boxes, depths, dot, picture, svg
from mlcc.report.layered_layout import layered_layout
from tests.report import report_data as made

SVG = "{http://www.w3.org/2000/svg}"


def boxes(text: str) -> list[ET.Element]:
    return [e for e in ET.fromstring(text).iter(f"{SVG}g") if e.get("class", "").startswith("box")]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    count = draw(st.integers(0, 30))
    sizes = draw(st.lists(st.tuples(st.floats(1, 300), st.floats(1, 90)), min_size=count, max_size=count))
    pairs = list(itertools.combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=60, unique=True)) if pairs else []
    return sizes, edges


@given(graphs())
def test_boxes_do_not_overlap_and_edges_lead_down(
    graph: tuple[list[tuple[float, float]], list[tuple[int, int]]],
) -> None:
    sizes, edges = graph
    layout = layered_layout(sizes, edges)
    for (a, (x, y)), (b, (u, v)) in itertools.combinations(enumerate(layout.centers), 2):
        apart = (
            abs(x - u) >= (sizes[a][0] + sizes[b][0]) / 2 - 1e-6,
            abs(y - v) >= (sizes[a][1] + sizes[b][1]) / 2 - 1e-6,
        )
        assert any(apart)
    for (a, b), curve in zip(edges, layout.curves, strict=True):
        assert curve[0] == (layout.centers[a][0], layout.centers[a][1] + sizes[a][1] / 2)
        assert curve[-1] == (layout.centers[b][0], layout.centers[b][1] - sizes[b][1] / 2)
        assert all(p[1] < q[1] for p, q in itertools.pairwise(curve))
    for (x, y), (w, h) in zip(layout.centers, sizes, strict=True):
        assert x - w / 2 >= -1e-6 and x + w / 2 <= layout.width + 1e-6
        assert y - h / 2 >= -1e-6 and y + h / 2 <= layout.height + 1e-6
    assert layered_layout(sizes, edges) == layout


@given(graphs())
def test_edges_run_beside_boxes(graph: tuple[list[tuple[float, float]], list[tuple[int, int]]]) -> None:
    """Between boxes of one layer edges are vertical, and where they lead aside no layer is."""
    sizes, edges = graph
    layout = layered_layout(sizes, edges)
    places = [
        (x - w / 2, x + w / 2, y - h / 2, y + h / 2) for (x, y), (w, h) in zip(layout.centers, sizes, strict=True)
    ]
    for curve in layout.curves:
        for (x0, y0), (x1, y1) in itertools.pairwise(curve):
            low, high = min(x0, x1), max(x0, x1)
            for left, right, top, bottom in places:
                beside = high < left + 1e-6 or low > right - 1e-6
                assert beside or y1 < top + 1e-6 or y0 > bottom - 1e-6


def test_a_chain_is_straight() -> None:
    layout = layered_layout([(100.0, 20.0), (40.0, 20.0), (70.0, 20.0)], [(0, 1), (1, 2)])
    assert len({x for x, _ in layout.centers}) == 1


def test_edges_that_lead_up_are_refused() -> None:
    with pytest.raises(ValueError, match="higher index"):
        layered_layout([(1.0, 1.0)] * 2, [(1, 0)])


def test_crossings_that_can_be_avoided_are() -> None:
    sizes = [(20.0, 20.0)] * 8
    edges = [(0, 7), (1, 6), (2, 5), (3, 4)]  # in the order of indices all of them would cross
    centers = layered_layout(sizes, edges).centers
    order = sorted(range(4), key=lambda n: centers[n][0])
    assert [7 - n for n in order] == sorted(range(4, 8), key=lambda n: centers[n][0])


def test_a_picture_is_xml_whatever_names_are() -> None:
    hostile = "</text><script>alert(1)</script>]]>&\"'\x00\x1b"
    graph = made.chain(2, op=hostile, path=hostile)
    graph["function"] = hostile
    root = ET.fromstring(svg(graph))
    assert not list(root.iter(f"{SVG}script"))
    assert len(boxes(svg(graph))) == 4


def test_constants_have_no_boxes_but_are_known() -> None:
    drawn = picture(made.report()["graphs"][0])
    [user] = [box for box in drawn.boxes if box.nodes == (2,)]
    assert user.parameters == (1,)
    assert user.lines[-1] == "with w_net"
    assert all(1 not in box.nodes for box in drawn.boxes)


def test_weights_among_many_inputs_are_named_by_their_users() -> None:
    graph = made.chain(8)
    for k in range(1, 9):
        graph["nodes"].append(made.node(20 + k, f"w{k}", "input"))
        graph["edges"].append([20 + k, k])
    drawn = picture(graph)
    assert len(drawn.boxes) == 11  # that of the first operator, which has inputs alone, is drawn
    assert [box.parameters for box in drawn.boxes if box.nodes == (3,)] == [(23,)]
    few = {**graph, "nodes": graph["nodes"][:-4]}
    assert sum(box.kind == "input" for box in picture(few).boxes) == 5


def test_operators_of_a_module_are_one_box() -> None:
    graph = made.report()["graphs"][0]
    assert depths(graph) == [1, 2]
    assert [count_boxes(graph, depth) for depth in (1, 2, None)] == [3, 4, 5]
    group = next(box for box in boxes(svg(graph, depth=2)) if "group" in box.get("class", ""))
    assert [text.text for text in group.iter(f"{SVG}text")] == ["net.layer", "2 operators", "(1, 8)"]


def test_groups_make_no_cycles() -> None:
    """A module whose operators are not consecutive has several boxes."""
    graph = made.chain(3)
    for node, path in zip(graph["nodes"][1:4], ("a.x", "b.y", "a.z"), strict=True):
        node["path"] = path
    assert count_boxes(graph, 1) == 5


def test_a_value_used_far_below_is_drawn_again_there() -> None:
    graph = made.chain(200)
    graph["edges"].append([1, 200])
    found = boxes(svg(graph))
    assert [box.get("data-nodes") for box in found if box.get("class") == "box reference"] == ["1"]


def test_nodes_may_come_in_any_order_and_with_cycles() -> None:
    graph = made.chain(5)
    graph["nodes"].reverse()
    assert [box.nodes[0] for box in picture(graph).boxes] == list(range(7))
    graph["edges"] += [[3, 2], [3, 3], [99, 1]]
    assert len(boxes(svg(graph))) == 7


@pytest.mark.parametrize("count", [0, 1, 2000])
def test_sizes(count: int) -> None:
    graph = made.chain(count)
    graph["edges"] += [[k, k + 5] for k in range(0, count - 5, 7)]
    text = svg(graph)
    assert len(boxes(text)) == count + 2
    assert text == svg(graph)


def test_an_empty_graph_is_a_picture() -> None:
    assert boxes(svg({"function": "main", "nodes": [], "edges": []})) == []


def test_a_file_is_readable_in_light_and_dark_without_new_functions() -> None:
    text = svg(made.chain(1))
    assert "light-dark" not in text and "prefers-color-scheme: dark" in text
    assert "<style>" not in svg(made.chain(1), alone=False)


def test_graphs_for_graphviz() -> None:
    graph = made.chain(1, op='R."x"\\', path="a\nb")
    assert dot(graph).splitlines() == [
        'digraph "main" {',
        '  node [shape=box, fontname="monospace"];',
        '  n0 [label="x\\n(1, 8) float32", style=rounded];',
        '  n1 [label="R.\\"x\\"\\\\\\n(1, 8) float32\\na b"];',
        '  n2 [label="out\\n(1, 8) float32", style=rounded];',
        '  n0 -> n1 [tooltip="(1, 8)"];',
        '  n1 -> n2 [tooltip="(1, 8)"];',
        "}",
    ]
