"""Ways to tamper with a client's replies."""

from __future__ import annotations

from flwr.app import ConfigRecord, MessageType

from muster.flower.wire import WORD


def in_training(change):
    """Tampers with replies to a request to train, and with no others."""

    def tamper(message, reply):
        if message.metadata.message_type != MessageType.TRAIN:
            return reply
        return change(message, reply)

    return tamper


def word(**values):
    def change(message, reply):
        said = {**reply.content.config_records[WORD], **values}
        reply.content[WORD] = ConfigRecord({k: v for k, v in said.items() if v is not None})
        return reply

    return in_training(change)
