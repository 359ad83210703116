"""What a service in Python makes of our bodies, and writes for us: with the libraries that such a
service would use, and none of this project's code.

Reads one request a line from standard input and answers each with a line; both are JSON, and bodies
are base64. `{"op": "read", "format": …, "body": …}` is answered with `{"value": …}`, and
`{"op": "write", "format": …, "value": …}` with `{"body": …}`; `{"error": …}` is what failed.
"""

import base64
import datetime
import io
import json
import os
import sys
import tomllib
import xml.etree.ElementTree as ElementTree

import fastavro
import tomli_w
import yaml
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict


def read_json(body, request):
    return json.loads(body)


def write_json(value, request):
    return json.dumps(value, ensure_ascii=False).encode()


def read_yaml(body, request):
    return yaml.safe_load(body)


def write_yaml(value, request):
    return yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode()


def read_toml(body, request):
    return tomllib.loads(body.decode())


def write_toml(value, request):
    return tomli_w.dumps(value).encode()


def read_xml(body, request):
    """An element with children is a map, one that comes again a list, and a leaf a text."""

    def value(element):
        if not len(element):
            return element.text or ""
        found = {}
        for child in element:
            found.setdefault(child.tag, []).append(value(child))
        return {name: all[0] if len(all) == 1 else all for name, all in found.items()}

    return value(ElementTree.fromstring(body))


def write_xml(value, request):
    def fill(element, value):
        for name, field in value.items():
            for one in field if isinstance(field, list) else [field]:
                child = ElementTree.SubElement(element, name)
                if isinstance(one, dict):
                    fill(child, one)
                elif isinstance(one, bool):
                    child.text = str(one).lower()
                elif one is not None:
                    child.text = str(one)

    root = ElementTree.Element("message")
    fill(root, value)
    return ElementTree.tostring(root, encoding="utf-8")


def plain(value):
    """What JSON can say of an Avro value."""
    if isinstance(value, datetime.datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, dict):
        return {key: plain(field) for key, field in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def read_avro(body, request):
    source = io.BytesIO(body)
    if "id" in request:
        assert source.read(1) == b"\0", "no magic"
        assert int.from_bytes(source.read(4), "big") == request["id"], "another id"
    value = fastavro.schemaless_reader(source, json.loads(request["schema"]), None)
    assert not source.read(), "more than the datum"
    return plain(value)


def write_avro(value, request):
    target = io.BytesIO()
    if "id" in request:
        target.write(b"\0" + request["id"].to_bytes(4, "big"))
    fastavro.schemaless_writer(target, json.loads(request["schema"]), value)
    return target.getvalue()


def read_protobuf(body, request):
    return MessageToDict(struct_pb2.Struct.FromString(body))


def write_protobuf(value, request):
    struct = struct_pb2.Struct()
    struct.update(value)
    return struct.SerializeToString()


def read_encrypted(body, request):
    assert body[:2] == b"\xae\x01", "no frame"
    nonce_at = 3 + body[2]
    assert body[3:nonce_at].decode() == request["key_id"], "another key"
    sealed_at = nonce_at + 12
    key = AESGCM(base64.b64decode(request["key"]))
    plain_text = key.decrypt(body[nonce_at:sealed_at], body[sealed_at:], body[:nonce_at])
    return json.loads(plain_text)


def write_encrypted(value, request):
    key_id = request["key_id"].encode()
    head = b"\xae\x01" + bytes([len(key_id)]) + key_id
    nonce = os.urandom(12)
    key = AESGCM(base64.b64decode(request["key"]))
    return head + nonce + key.encrypt(nonce, write_json(value, request), head)


def answer(request):
    work = globals()[f"{request['op']}_{request['format']}"]
    if request["op"] == "read":
        return {"value": work(base64.b64decode(request["body"]), request)}
    return {"body": base64.b64encode(work(request["value"], request)).decode()}


for line in sys.stdin:
    try:
        reply = answer(json.loads(line))
    except Exception as error:  # whatever it is, the test shows it
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
