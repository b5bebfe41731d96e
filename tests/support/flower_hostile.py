"""Hostile answers to a message, each made by hand; and every call that a superlink answers."""

from __future__ import annotations

from fastapi.routing import iter_route_contexts
from flwr.superlink.main import create_app

from muster.flower.transport.wire import MODEL, NONCE, OFFER, REPORT


def every_route():
    """Every method and path of Flower's superlink."""
    routes = (found.route for found in iter_route_contexts(create_app().routes))
    return {
        (method, route.path) for route in routes for method in getattr(route, "methods", None) or ()
    }


def nonce(message):
    return message.content.config_records[OFFER][NONCE]


def sound_word(raw, message, **said):
    offer = message.content.config_records[OFFER]
    word = {
        "round": offer["round"], "client": offer["client"], "rows": 100, "joined": True,
        "reason": "", "steps": 20, NONCE: nonce(message), **said,
    }  # fmt: skip
    return raw.word(word)


def nested_json(raw, message, found, n=102_000):
    """204 kB of brackets where the names of the records should be."""
    deep = b"[" * n + b"]" * n
    records = raw.add("RecordDict", (sound_word(raw, message),), deep)
    return raw.message(message.metadata, records)


def less_nested_json(raw, message, found):
    """As much as the limit in bytes lets through."""
    return nested_json(raw, message, found, 20_000)


def nested_objects(raw, message, found):
    """Records in records in records."""
    inner = raw.records({REPORT: sound_word(raw, message)})
    for _ in range(20):
        inner = raw.records({REPORT: inner})
    return raw.message(message.metadata, inner)


def misplaced_objects(raw, message, found):
    """A message in a message: shallow enough, and nothing that belongs there."""
    records = raw.records({REPORT: sound_word(raw, message)})
    inside = raw.message(message.metadata, records).tree
    return raw.message(message.metadata, inside)


def with_arrays(raw, message, **arrays):
    named = {REPORT: sound_word(raw, message), MODEL: raw.arrays(arrays)}
    return raw.message(message.metadata, raw.records(named))


def repeated_chunk(raw, message, found):
    """A reply of 70 kB, less than a sound one, that becomes 200 MB."""
    return with_arrays(raw, message, **{"1.weight": raw.array(b"\1" * 10_000, 20_000)})


def repeated_chunk_of_megabytes(raw, message, found):
    """5 MB, 4,000 times: what Flower puts together at once."""
    return with_arrays(raw, message, **{"1.weight": raw.array(b"\1" * 2_400_000, 4_000)})


def many_objects(raw, message, found):
    chunks = [raw.add("ArrayChunk", (), str(i).encode()) for i in range(2_000)]
    return raw.message(message.metadata, raw.add("RecordDict", chunks, b"{}"))


def huge_object(raw, message, found):
    return raw.message(message.metadata, raw.records({REPORT: raw.word({"reason": "x" * 10**6})}))


def unannounced(raw, message, found):
    """It refers to an object that it does not announce."""
    announced = raw.message(message.metadata, raw.records({REPORT: sound_word(raw, message)}))
    del announced.tree.children[:]
    return announced


def other_content(raw, message, found):
    """The object is not the one that was announced."""
    announced = raw.message(message.metadata, raw.records({REPORT: sound_word(raw, message)}))
    raw.contents[announced.tree.children[0].object_id] += b" "
    return announced


def unknown_kind(raw, message, found):
    return raw.message(message.metadata, raw.add("Evil", (), b""))


def no_json(raw, message, found):
    records = raw.add("RecordDict", (sound_word(raw, message),), b'{"word"')
    return raw.message(message.metadata, records)


def chunk_that_is_not_there(raw, message, found):
    chunk = raw.add("ArrayChunk", (), b"1")
    array = raw.add("Array", (chunk,), b'{"arraychunk_ids": [7]}')
    return with_arrays(raw, message, **{"1.weight": array})
