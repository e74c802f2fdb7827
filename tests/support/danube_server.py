"""A gRPC server that answers as it is told, in the place of somebody's broker."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from google.protobuf.message_factory import GetMessageClass


class Told:
    """Answers calls by their paths, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers = {}
        """By method: a message, a status with its text, a list of such, or a function.

        A list is told one after the other, the last one again and again; a function
        is given the request and yields the messages of a stream.
        """
        self.requests = []
        """Method and request, in the order in which they came."""
        self.metadata = []
        self.url = ""
        self._lock = threading.Lock()

    def asked(self, method):
        """The requests to *method*."""
        return [request for name, request in self.requests if name == method]

    def next_answer(self, method, request, context):
        with self._lock:
            self.requests.append((method, request))
            self.metadata.append(dict(context.invocation_metadata()))
            answer = self.answers.get(method, (grpc.StatusCode.UNIMPLEMENTED, method))
            if isinstance(answer, list):
                return answer.pop(0) if len(answer) > 1 else answer[0]
            return answer


@contextmanager
def danube_server(*files, credentials=None):
    """A ``Told`` that has the services of the descriptors *files*, on a free port."""
    told = Told()
    server = grpc.server(ThreadPoolExecutor(8))
    for file in files:
        for service in file.services_by_name.values():
            server.add_generic_rpc_handlers([_handler(told, service)])
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
        told.url = f"http://127.0.0.1:{port}"
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
        told.url = f"https://127.0.0.1:{port}"
    server.start()
    try:
        yield told
    finally:
        server.stop(0).wait()


def _handler(told, service):
    methods = {each.name: _rpc(told, each) for each in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _rpc(told, method):
    def unary(request, context):
        answer = told.next_answer(method.name, request, context)
        if isinstance(answer, tuple):
            context.abort(*answer)
        return answer

    def stream(request, context):
        answer = told.next_answer(method.name, request, context)
        if isinstance(answer, tuple):
            context.abort(*answer)
        yield from answer(request, context)

    make = (
        (grpc.unary_stream_rpc_method_handler, stream)
        if method.server_streaming
        else (grpc.unary_unary_rpc_method_handler, unary)
    )
    return make[0](
        make[1],
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )
