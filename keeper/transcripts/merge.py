"""Folds a live transcript into the kept one, record by record: nothing is lost, nothing stands twice.

Promises the laws MERGE-1 to MERGE-12: kept's order stays; a record that only live has goes right behind the
one before it; what live has behind its last known record ends the file, repeats included (but for the late
lines of an older file); the same merge again adds nothing. It is a patience diff: uuids are the anchors, and
lines without one are matched in order between two anchors. Time and memory are linear in the lines, whatever
their order.

Refuses to write anything anew: every line is carried byte for byte, whether or not a parser takes it. An
unfinished last line is no record: live's waits, kept's is completed by live or handed back to be set aside.
"""

from collections import Counter
from dataclasses import dataclass

from keeper.transcripts.records import split, uuid_of


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged lines in order, each without its `\\n`, and what else the caller has to know.

    `added`: how many of the lines kept did not have. `variants`: the uuids under which live brought other
    bytes than kept has, each worth a warning (MERGE-8). `torn`: kept's unfinished last line where no line of
    live begins with it, to be set aside (MERGE-10). `waiting`: live's unfinished last line; it stays with live.
    """

    lines: list[bytes]
    added: int
    variants: tuple[str, ...]
    torn: tuple[bytes, ...]
    waiting: bytes

    @property
    def data(self) -> bytes:
        return b"\n".join([*self.lines, b""])


def merge(kept: bytes, live: bytes, late: bool = False, taken: int = 0) -> Merged:
    """Kept and live as one.

    `late`: live is an older file than kept, which took its place with all that was known of it then. What it has behind
    its last known record was written before what kept got since, so it goes behind that record, not to the end. So
    many of its first lines are known to be `taken`.
    """
    ours, theirs = split(kept), split(live)
    lines, variants = _fold(ours.lines, theirs.lines, taken if late else None)
    completed = any(line.startswith(ours.tail) for line in theirs.lines)
    torn = (ours.tail,) if ours.tail and not completed else ()
    return Merged(lines, len(lines) - len(ours.lines), variants, torn, theirs.tail)


def _fold(kept: list[bytes], live: list[bytes], late: int | None) -> tuple[list[bytes], tuple[str, ...]]:
    # Claude went on writing, or live is a part of kept (MERGE-4): nearly every call, and no line is parsed.
    if live[: len(kept)] == kept:
        return live, ()
    if is_part(live, kept):
        return kept, ()
    anchors = _Anchors(kept, live)
    # What is ahead in its middle is taken as it is, but for variants, which have a place of their own (MERGE-8).
    if not anchors.variants and is_part(kept, live):
        return live, ()
    return _Walk(kept, live, anchors, late).merged(), tuple(anchors.variants)


def is_part(some: list[bytes], whole: list[bytes]) -> bool:
    """Whether all lines of the one stand in the other, in order."""
    rest = iter(whole)
    return all(line in rest for line in some)


# What a line of live is to kept. A record that kept holds is the index, from 0, of the kept line.
_PLAIN = -1  # it has no uuid
_NEW = -2  # kept has nothing of this uuid
_VARIANT = -3  # kept has this uuid with other bytes only
_COPY = -4  # kept has this very line, but fewer times than live has had it so far


class _Anchors:
    """Which lines of live kept knows by their uuid, where, and in which order live comes to them.

    Kept lines of one uuid side by side are one place, known by the index of its first line. Live comes to a
    place *in turn* when it lies behind all that it came to before, else *out of turn*; the first visit counts.
    """

    def __init__(self, kept: list[bytes], live: list[bytes]) -> None:
        self.uuids: dict[bytes, str | None] = {}
        self.opens: dict[int, int] = {}
        self.closes: dict[int, int] = {}
        self.at: dict[bytes, int] = {}
        self.repeats: dict[bytes, list[int]] = {}
        self.newest: dict[str, int] = {}
        self._know(kept)

        self.variants: dict[str, None] = {}
        self.behind: dict[int, int] = {}
        self.what = self._locate(live)

        self.end = self._end()
        self.copies = Counter(live[i] for i in range(self.end) if self.what[i] == _NEW)
        self.in_turn: set[int] = set()
        self.out_of_turn: set[int] = set()
        self._order()

    def place(self, index: int) -> int:
        return self.opens.get(index, index)

    def close(self, place: int) -> int:
        """The index of the last line of a place."""
        return self.closes.get(place, place)

    def _uuid(self, line: bytes) -> str | None:
        # Each distinct line is parsed once: parsing is what a merge costs (MERGE-12).
        try:
            return self.uuids[line]
        except KeyError:
            found = self.uuids[line] = uuid_of(line)
            return found

    def _know(self, kept: list[bytes]) -> None:
        before = None
        for index, line in enumerate(kept):
            uuid = self._uuid(line)
            if uuid is not None:
                if line in self.at:
                    self.repeats.setdefault(line, [self.at[line]]).append(index)
                else:
                    self.at[line] = index
                if uuid == before:
                    place = self.opens[index] = self.place(index - 1)
                    self.closes[place] = index
                self.newest[uuid] = index
            before = uuid

    def _locate(self, live: list[bytes]) -> list[int]:
        what = []
        seen: Counter[bytes] = Counter()
        for index, line in enumerate(live):
            uuid = self._uuid(line)
            if uuid is None:
                what.append(_PLAIN)
            elif line in self.at:
                places = self.repeats.get(line) or [self.at[line]]
                seen[line] += 1
                if seen[line] <= len(places):
                    what.append(places[seen[line] - 1])
                else:
                    what.append(_COPY)
                    self.behind[index] = places[-1]
            elif uuid in self.newest:
                what.append(_VARIANT)
                self.behind[index] = self.newest[uuid]
                self.variants[uuid] = None
            else:
                what.append(_NEW)
        return what

    def _end(self) -> int:
        """Where live's last known record ends: all from there on is newer than what kept holds."""
        for index in range(len(self.what) - 1, -1, -1):
            if self.what[index] >= 0 or self.what[index] == _VARIANT:
                return index + 1
        return 0

    def _order(self) -> None:
        furthest = -1
        for index in range(self.end):
            at = self.behind.get(index, self.what[index])
            place = self.place(at)
            if at < 0 or place in self.in_turn or place in self.out_of_turn:
                continue
            if place > furthest:
                furthest = place
                self.in_turn.add(place)
            else:
                self.out_of_turn.add(place)


_HEAD = -1  # the place in front of kept's first line


class _Walk:
    """Goes through live once and notes behind which kept line each line goes that kept lacks.

    Every kept line without a uuid has one owner: the place out of turn that it directly follows, else the last
    place in turn before it. A line of live without a uuid is looked for among the lines of the place that live
    came to last, then among those of the last place in turn. So no two places compete for a line, and merging
    again finds every line where this merge put it (MERGE-3). In a live file in kept's order nothing is out of
    turn, and this is plain matching between two anchors.
    """

    def __init__(self, kept: list[bytes], live: list[bytes], anchors: _Anchors, late: int | None) -> None:
        self.kept = kept
        self.anchors = anchors
        self.first: dict[tuple[int, bytes], int] = {}
        self.again: dict[int, int] = {}
        if anchors.end:
            self._index()

        self.visited: set[int] = set()
        self.placed: set[bytes] = set()
        # The last place in turn, and the last kept line of it that live has come to.
        self.place = _HEAD
        self.cursor = -1
        # The same for a place out of turn, while live is there.
        self.aside: int | None = None
        self.aside_cursor = -1

        self.head: list[bytes] = []
        self.head_at = 0
        self.beside: dict[int, list[bytes]] = {}
        self.behind: dict[int, list[bytes]] = {}
        for index in range(anchors.end):
            self._step(index, live[index], taken=late is not None and index < late)
        self.tail = live[max(self._newer(live), late or 0) :]
        if late is not None and anchors.end:
            self._insert(self.tail)
            self.tail = []

    def merged(self) -> list[bytes]:
        lines: list[bytes] = []
        done = 0
        for index in sorted({self.head_at - 1, *self.beside, *self.behind}):
            lines += self.kept[done : index + 1]
            lines += self.beside.get(index, ())
            lines += self.behind.get(index, ())
            if index == self.head_at - 1:
                lines += self.head
            done = index + 1
        lines += self.kept[done:]
        lines += self.tail
        return lines

    def _index(self) -> None:
        """Notes where each line stands first under its owner, and where it stands again."""
        anchors = self.anchors
        runs = []
        start, owner, in_turn = 0, _HEAD, _HEAD
        for index, line in enumerate(self.kept):
            if anchors.uuids[line] is not None:
                runs.append((owner, start, index))
                owner = anchors.place(index)
                if owner in anchors.in_turn:
                    in_turn = owner
                elif owner not in anchors.out_of_turn:
                    owner = in_turn
                start = index + 1
        runs.append((owner, start, len(self.kept)))
        for owner, start, stop in reversed(runs):
            for index in range(stop - 1, start - 1, -1):
                key = owner, self.kept[index]
                if key in self.first:
                    self.again[index] = self.first[key]
                self.first[key] = index

    def _step(self, index: int, line: bytes, taken: bool) -> None:
        anchors = self.anchors
        what = anchors.what[index]
        if what == _PLAIN:
            if not self._match(line) and not taken:
                self._insert([line])
        elif what == _NEW:
            # Copies of one new record stand side by side, or a second merge would count them in another order.
            if line not in self.placed:
                self.placed.add(line)
                self._insert([line] * anchors.copies[line])
        elif what < 0:
            # Claude reads the later of two records of one uuid: it sees live's, and kept's stays (MERGE-8).
            self.beside.setdefault(anchors.behind[index], []).append(line)
            self._visit(anchors.place(anchors.behind[index]))
        else:
            self._visit(anchors.place(what))

    def _visit(self, place: int) -> None:
        anchors = self.anchors
        if place in self.visited:
            return
        self.visited.add(place)
        if place in anchors.in_turn:
            if self.place == _HEAD and self.cursor == -1:
                self.head_at = self._front(place)
            self.place = place
            self.cursor = anchors.close(place)
            self.aside = None
        else:
            self.aside = place
            self.aside_cursor = anchors.close(place)

    def _front(self, place: int) -> int:
        """Where live's head goes: before its first known place, but under no place out of turn."""
        anchors = self.anchors
        front = index = place
        while index > 0:
            index -= 1
            if anchors.uuids[self.kept[index]] is not None:
                if anchors.place(index) not in anchors.out_of_turn:
                    break
                front = index = anchors.place(index)
        return front

    def _match(self, line: bytes) -> bool:
        if self.aside is not None:
            found = self._find(self.aside, line, self.aside_cursor)
            if found is not None:
                self.aside_cursor = found
                return True
        found = self._find(self.place, line, self.cursor)
        if found is None:
            return False
        if self.place == _HEAD and self.cursor == -1:
            self.head_at = found
        self.aside = None
        self.cursor = found
        return True

    def _newer(self, live: list[bytes]) -> int:
        """The index in live from which on all goes to the end of the file.

        Lines right behind live's last known record are known where kept has them right behind it. Those that
        follow are known only as kept's own end, where an earlier merge put them: a title that live sets again
        is not the old one, though the bytes are (MERGE-6).
        """
        uuids, kept, at = self.anchors.uuids, self.kept, self.anchors.end
        ends = len(kept)
        while ends and uuids[kept[ends - 1]] is None:
            ends -= 1
        plain = at
        while plain < len(live) and self.anchors.what[plain] == _PLAIN:
            plain += 1
        if at or not ends:
            start = (self.cursor if self.aside is None else self.aside_cursor) + 1
            stop = start
            while stop < len(kept) and uuids[kept[stop]] is None:
                stop += 1
            for index in range(start, stop):
                if at < plain and live[at] == kept[index]:
                    at += 1
                    if self.aside is None:
                        self.cursor = index
                    else:
                        self.aside_cursor = index
            if stop == len(kept):
                return at
        return at + _overlap(kept[max(ends, self.cursor + 1) :], live[at:plain])

    def _find(self, owner: int, line: bytes, cursor: int) -> int | None:
        """The first such line of that owner behind the cursor; all calls together step over each line once."""
        key = owner, line
        index = self.first.get(key)
        while index is not None and index <= cursor:
            index = self.again.get(index)
            if index is None:
                del self.first[key]
            else:
                self.first[key] = index
        return index

    def _insert(self, lines: list[bytes]) -> None:
        if self.aside is not None:
            self.behind.setdefault(self.aside_cursor, []).extend(lines)
        elif self.cursor == -1:
            self.head.extend(lines)
        else:
            self.behind.setdefault(self.cursor, []).extend(lines)


def _overlap(before: list[bytes], after: list[bytes]) -> int:
    """How many lines at the end of the one are the lines at the beginning of the other; the most that can be."""
    # Knuth, Morris and Pratt: linear, also where all lines are equal.
    back = [0]
    met = 0
    for line in after[1:]:
        while met and after[met] != line:
            met = back[met - 1]
        met += after[met] == line
        back.append(met)
    met = 0
    for line in before:
        while met and (met == len(after) or after[met] != line):
            met = back[met - 1]
        met += bool(after) and after[met] == line
    return met
