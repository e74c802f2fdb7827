"""The package's source as it travels with a query."""

import ast
import io
import zipfile

from pydanube_spark.package_archive import archive, formats, ship_by_value


def test_archive_has_the_client_and_not_the_broker():
    names = zipfile.ZipFile(io.BytesIO(archive())).namelist()
    assert {
        "pydanube/__init__.py",
        "pydanube/sync.py",
        "pydanube_spark/source.py",
        "pydanube_spark/topic_sink.py",
        "pydanube/wire/pb/stream_pb2.py",
        "pyspark_danube/__init__.py",
    } <= set(names)
    packages = {name.split("/")[0] for name in names}
    assert packages == {"pydanube", "pydanube_spark", *formats().values()}


def test_archive_has_everything_that_its_modules_import():
    files = zipfile.ZipFile(io.BytesIO(archive()))
    names = files.namelist()
    imported = {
        node.module.replace(".", "/")
        for name in names
        # Modules beside the packages, and the registry, belong to the broker as well.
        if name.endswith(".py") and name.count("/") > 1 and "registry" not in name
        for node in ast.walk(ast.parse(files.read(name)))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("pydanube")
    }
    assert len(imported) > 50
    missing = {
        module
        for module in imported
        if not {f"{module}.py", f"{module}/__init__.py"} & set(names)
    }
    assert missing == set()


def test_archive_of_the_same_source_is_the_same():
    before = archive()
    archive.cache_clear()
    assert archive() == before


def test_ship_by_value_registers_all_formats():
    assert formats()["danube"] == "pyspark_danube"

    class Session:
        """Takes down what is registered."""

        def __init__(self):
            self.registered = []
            self.dataSource = self  # Spark's name.

        def register(self, source):
            self.registered.append(source)

    session = Session()
    ship_by_value(session)
    assert [each.name() for each in session.registered] == list(formats())
    assert {each.archive for each in session.registered} == {archive()}
