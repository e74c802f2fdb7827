from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendRequest(_message.Message):
    __slots__ = ("topic", "producer", "generation", "epoch", "settled", "batches")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    producer: str
    generation: int
    epoch: int
    settled: int
    batches: _containers.RepeatedCompositeFieldContainer[InternalBatch]
    def __init__(self, topic: _Optional[str] = ..., producer: _Optional[str] = ..., generation: _Optional[int] = ..., epoch: _Optional[int] = ..., settled: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[InternalBatch, _Mapping]]] = ...) -> None: ...

class InternalBatch(_message.Message):
    __slots__ = ("positions", "frame")
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    frame: bytes
    def __init__(self, positions: _Optional[_Iterable[int]] = ..., frame: _Optional[bytes] = ...) -> None: ...

class AppendAnswer(_message.Message):
    __slots__ = ("error_code", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: str
    message: str
    def __init__(self, error_code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class OperateRequest(_message.Message):
    __slots__ = ("kind", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: int
    message: bytes
    def __init__(self, kind: _Optional[int] = ..., message: _Optional[bytes] = ...) -> None: ...

class OperateAnswer(_message.Message):
    __slots__ = ("error_code", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: str
    error: str
    message: bytes
    def __init__(self, error_code: _Optional[str] = ..., error: _Optional[str] = ..., message: _Optional[bytes] = ...) -> None: ...
