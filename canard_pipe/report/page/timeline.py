"""Commands in time, as shapes for the template: how many of each step were at work at once, and, where rows are few,
a bar for each try. Times without any work are cut out: a run that was resumed after a week is not a week wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from canard_pipe.report.page.tries import Tried
from canard_pipe.report.wording import duration, local_time

WIDTH, AREA_HEIGHT, ROW_HEIGHT, NAME_WIDTH = 1000.0, 180.0, 16.0, 150.0
BUCKETS = 200
MOST_STEPS, MOST_ROWS, MOST_BARS = 7, 60, 3000
OTHERS = "other steps"
CUT = 12.0  # how wide a cut is
IDLE_SHARE, IDLE_SECONDS = 0.1, 60.0


@dataclass(frozen=True, slots=True)
class Area:
    """One step of the area chart: ``points`` of a polygon, ``colour`` a number of the palette."""

    label: str
    colour: int
    points: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One try. ``title`` is shown under the pointer."""

    x: float
    y: float
    width: float
    colour: int
    bad: bool
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A text at a place: a tick of the time axis, a cut, or the name of a row."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """``most`` commands were at work at once, on average over a bucket of time."""

    areas: tuple[Area, ...]
    bars: tuple[Bar, ...]
    names: tuple[Mark, ...]
    ticks: tuple[Mark, ...]
    cuts: tuple[Mark, ...]
    most: float
    busy_seconds: float

    @property
    def height(self) -> float:
        """Return the height of the bars."""
        return ROW_HEIGHT * len(self.names)


class _Axis:
    """From instants to places: stretches of work side by side, with the cuts between them."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        busy = _merged(spans, 0)
        total = sum(end - start for start, end in busy)
        self.parts = _merged(spans, max(round(IDLE_SHARE * total), round(IDLE_SECONDS * 1e6)))
        self.seconds = sum(end - start for start, end in self.parts) / 1e6
        room = WIDTH - CUT * (len(self.parts) - 1)
        self._scale = room / max(sum(end - start for start, end in self.parts), 1)

    def place(self, at_us: int) -> float:
        """Return where an instant lies, from 0 to WIDTH."""
        x = 0.0
        for start, end in self.parts:
            if at_us <= end:
                return x + max(at_us - start, 0) * self._scale
            x += (end - start) * self._scale + CUT
        return WIDTH

    def cuts(self) -> tuple[Mark, ...]:
        """Return the cuts with the length of what is left out."""
        return tuple(
            Mark(self.place(start) - CUT / 2, 0.0, duration((start - before) / 1e6))
            for (_, before), (start, _) in zip(self.parts, self.parts[1:], strict=False)
        )

    def ticks(self) -> tuple[Mark, ...]:
        """Return the beginning of each part, and some times within those that are wide."""
        found = []
        for start, end in self.parts[:8]:
            many = max(1, round((end - start) * self._scale / 200))
            found += [start + (end - start) * number // many for number in range(many)]
        places = [Mark(self.place(at), 0.0, local_time(at)[5:]) for at in found]
        return tuple(tick for number, tick in enumerate(places) if number == 0 or tick.x - places[number - 1].x > 90)


def timeline(tries: Sequence[Tried], now_us: int) -> Timeline | None:
    """Return the shapes; None where no command has begun. One that is at work goes on until ``now_us``."""
    begun = [each for each in tries if each.started_us is not None]
    spans = [_span(each, now_us) for each in begun]
    if not spans:
        return None
    axis = _Axis(spans)
    totals: dict[str, int] = {}
    for each, (start, end) in zip(begun, spans, strict=True):
        totals[each.label] = totals.get(each.label, 0) + end - start
    labels = sorted(totals, key=lambda label: -totals[label])[:MOST_STEPS]
    order = [label for label in dict.fromkeys(each.label for each in begun) if label in labels]
    colours = {label: number for number, label in enumerate(order)}
    areas, most = _areas(begun, spans, axis, colours)
    bars, names = _bars(begun, spans, axis, colours)
    return Timeline(areas, bars, names, axis.ticks(), axis.cuts(), most, axis.seconds)


def _areas(
    begun: Sequence[Tried], spans: Sequence[tuple[int, int]], axis: _Axis, colours: dict[str, int]
) -> tuple[tuple[Area, ...], float]:
    layers = {label: [0.0] * BUCKETS for label in [*colours, OTHERS]}
    wide = WIDTH / BUCKETS
    for each, (start, end) in zip(begun, spans, strict=True):
        layer = layers[each.label if each.label in colours else OTHERS]
        left, right = axis.place(start), axis.place(end)
        first, last = min(int(left / wide), BUCKETS - 1), min(int(right / wide), BUCKETS - 1)
        for bucket in range(first, last + 1):
            share = (min(right, (bucket + 1) * wide) - max(left, bucket * wide)) / wide
            layer[bucket] += max(share, 0.0)
    most = max(sum(layer[bucket] for layer in layers.values()) for bucket in range(BUCKETS)) or 1.0
    below = [0.0] * BUCKETS
    areas = []
    for label, layer in layers.items():
        above = [low + high for low, high in zip(below, layer, strict=True)]
        if any(layer):
            areas.append(Area(label, colours.get(label, MOST_STEPS), _polygon(below, above, wide, most)))
        below = above
    return tuple(areas), most


def _polygon(below: Sequence[float], above: Sequence[float], wide: float, most: float) -> str:
    def at(bucket: int, level: float) -> str:
        return f"{bucket * wide:.0f},{AREA_HEIGHT * (1 - level / most):.1f}"

    top = [at(bucket + side, level) for bucket, level in enumerate(above) for side in (0, 1)]
    bottom = [at(bucket + side, below[bucket]) for bucket in reversed(range(len(below))) for side in (1, 0)]
    return " ".join([*top, *bottom])


def _bars(
    begun: Sequence[Tried], spans: Sequence[tuple[int, int]], axis: _Axis, colours: dict[str, int]
) -> tuple[tuple[Bar, ...], tuple[Mark, ...]]:
    """Return a bar for each try, and the names of the rows; nothing where that would be too much to look at."""
    rows: dict[int, int] = {}
    for each in begun:
        rows.setdefault(each.seq, len(rows))
    if len(rows) > MOST_ROWS or len(begun) > MOST_BARS:
        return (), ()
    names = {rows[each.seq]: each.sample for each in begun}
    bars = [
        Bar(
            axis.place(start), rows[each.seq] * ROW_HEIGHT, max(axis.place(end) - axis.place(start), 1.0),
            colours.get(each.label, MOST_STEPS), each.bad, _title(each),
        )
        for each, (start, end) in zip(begun, spans, strict=True)
    ]  # fmt: skip
    return tuple(bars), tuple(Mark(0.0, number * ROW_HEIGHT, name) for number, name in sorted(names.items()))


def _title(each: Tried) -> str:
    item = f" [{each.item}]" if each.item else ""
    took = "" if each.seconds is None else f", {duration(each.seconds)}"
    return f"{each.sample}{item}: {each.step or each.label}, try {each.attempt}, {each.state}{took}"


def _span(each: Tried, now_us: int) -> tuple[int, int]:
    start = each.started_us or 0
    return start, max(start, each.ended_us or (now_us if each.live else start))


def _merged(spans: Sequence[tuple[int, int]], gap_us: int) -> list[tuple[int, int]]:
    """Return the stretches that the spans cover, those less than ``gap_us`` apart as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start - found[-1][1] <= gap_us:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
