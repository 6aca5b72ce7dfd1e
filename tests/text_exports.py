"""One crowd that labelled texts, written in every format that holds the texts themselves."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tests.exports import (
    Crowd,
    annotation,
    argilla1,
    argilla1_feedback,
    argilla1_records,
    argilla2,
    argilla2_flat,
    choice,
    prodigy,
    table,
    write,
)

TEXT_CROWD: Crowd = {
    "12": {"ada": "pos", "bob": "neg"},
    "7": {"bob": "neg"},
    "31": {"ada": "pos", "bob": "pos", "cy": "neg"},
    "8": {"cy": "pos"},
}


def text_of(item: str) -> str:
    """The text of an item, as the writers of tests.exports write it."""
    return f"about {item}"


def pairs(crowd: Crowd) -> list[tuple[str, str, str]]:
    return [(item, who, what) for item, labels in crowd.items() for who, what in labels.items()]


def write_label_studio(folder: Path, crowd: Crowd) -> Path:
    tasks = [
        {
            "id": int(item),
            "data": {"text": text_of(item), "source": "web"},
            "annotations": [annotation({"id": 5, "email": who}, choice(what)) for who, what in labels.items()],
            "predictions": [{"model_version": "v1", "result": [choice("mistake")]}],
        }
        for item, labels in crowd.items()
    ]
    return write(folder / "export.json", tasks)


def write_label_studio_min(folder: Path, crowd: Crowd) -> Path:
    rows = [
        {"text": text_of(item), "source": "web", "id": int(item), "animal": what, "annotator": who}
        | {"annotation_id": 9, "created_at": "2024-03-09T22:16:08Z", "updated_at": "2024-03-09", "lead_time": 4.3}
        for item, who, what in pairs(crowd)
    ]
    return write(folder / "export.json", rows)


def write_label_studio_csv(folder: Path, crowd: Crowd) -> Path:
    """Columns in alphabetical order, as Label Studio writes them."""
    rows = [
        {"animal": what, "annotation_id": "9", "annotator": who, "created_at": "2024-03-09T22:16:08Z", "id": item}
        | {"lead_time": "4.3", "source": "web", "text": text_of(item), "was_cancelled": "False"}
        for item, who, what in pairs(crowd)
    ]
    return write(folder / "export.csv", table([list(rows[0]), *(list(row.values()) for row in rows)]))


def write_prodigy(folder: Path, crowd: Crowd) -> Path:
    records = [record | {"_input_hash": int(record["meta"]["name"])} for record in prodigy(crowd)]
    return write(folder / "annotations.jsonl", records)


def doccano_files(crowd: Crowd) -> dict[str, str]:
    """One file per annotator, which lists all documents, also those without a label of this annotator."""
    names = sorted({who for labels in crowd.values() for who in labels})
    records = {
        who: [
            {"id": int(item), "text": text_of(item), "label": [labels[who]] if who in labels else [], "Comments": []}
            for item, labels in crowd.items()
        ]
        for who in names
    }
    return {f"{who}.jsonl": "".join(json.dumps(line) + "\n" for line in lines) for who, lines in records.items()}


def write_doccano(folder: Path, crowd: Crowd) -> Path:
    (folder / "doccano").mkdir()
    for name, content in doccano_files(crowd).items():
        (folder / "doccano" / name).write_text(content)
    return folder / "doccano"


def write_doccano_zip(folder: Path, crowd: Crowd) -> Path:
    with zipfile.ZipFile(folder / "doccano.zip", "w") as packed:
        for name, content in doccano_files(crowd).items():
            packed.writestr(name, content)
    return folder / "doccano.zip"


def long_columns(crowd: Crowd) -> dict[str, list[Any]]:
    rows = pairs(crowd)
    return {
        "id": [int(item) for item, _, _ in rows],
        "text": [text_of(item) for item, _, _ in rows],
        "annotator": [who for _, who, _ in rows],
        "label": [what for _, _, what in rows],
    }


def long_rows(crowd: Crowd) -> list[list[str]]:
    columns = long_columns(crowd)
    return [list(columns), *([str(value) for value in row] for row in zip(*columns.values(), strict=True))]


def write_csv(folder: Path, crowd: Crowd) -> Path:
    return write(folder / "labels.csv", table(long_rows(crowd)))


def write_semicolons(folder: Path, crowd: Crowd) -> Path:
    return write(folder / "labels.csv", "\ufeff" + "".join(";".join(row) + "\r\n" for row in long_rows(crowd)))


def write_gzip(folder: Path, crowd: Crowd) -> Path:
    with gzip.open(folder / "labels.csv.gz", "wt", encoding="utf-8") as file:
        file.write(table(long_rows(crowd)))
    return folder / "labels.csv.gz"


def write_utf16(folder: Path, crowd: Crowd) -> Path:
    content = "".join("\t".join(row) + "\r\n" for row in long_rows(crowd))
    (folder / "labels.csv").write_bytes(content.encode("utf-16"))
    return folder / "labels.csv"


def write_excel(folder: Path, crowd: Crowd) -> Path:
    import openpyxl

    book = openpyxl.Workbook()
    columns = long_columns(crowd)
    for row in (list(columns), *zip(*columns.values(), strict=True)):
        book.active.append(list(row))
    book.save(folder / "labels.xlsx")
    return folder / "labels.xlsx"


def write_wide(folder: Path, crowd: Crowd) -> Path:
    who = sorted({name for labels in crowd.values() for name in labels})
    rows = [[item, text_of(item), *(labels.get(name, "") for name in who)] for item, labels in crowd.items()]
    return write(folder / "labels.csv", table([["item", "text", *who], *rows]))


def write_dataset(folder: Path, crowd: Crowd) -> Path:
    """The layout of `datasets.Dataset.save_to_disk`, with a ClassLabel."""
    columns = long_columns(crowd)
    names = ["neg", "pos"]
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    columns["label"] = [names.index(label) for label in columns["label"]]
    rows = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path = folder / "dataset"
    path.mkdir()
    parts = [rows.slice(0, 3), rows.slice(3)]
    files = [f"data-{part:05d}-of-00002.arrow" for part in range(2)]
    for part, name in zip(parts, files, strict=True):
        with pa.OSFile(str(path / name), "wb") as data, pa.ipc.new_stream(data, part.schema) as stream:
            stream.write_table(part)
    write(path / "state.json", {"_data_files": [{"filename": name} for name in files], "_split": None})
    write(path / "dataset_info.json", {"features": features})
    return path


def write_parquet_folder(folder: Path, crowd: Crowd) -> Path:
    path = folder / "repository" / "data"
    path.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.table(long_columns(crowd)), path / "train-00000-of-00001.parquet")
    return path.parent


def writer_of(make: Callable[[Crowd], Any], name: str) -> Callable[[Path, Crowd], Path]:
    """A writer of records that tests.exports makes."""
    return lambda folder, crowd: write(folder / name, make(crowd))


TEXT_FORMS: dict[str, Callable[[Path, Crowd], Path]] = {
    "CSV": write_csv,
    "CSV with semicolons": write_semicolons,
    "CSV with gzip": write_gzip,
    "UTF-16 with tabs": write_utf16,
    "Excel": write_excel,
    "wide": write_wide,
    "Label Studio": write_label_studio,
    "Label Studio JSON_MIN": write_label_studio_min,
    "Label Studio CSV": write_label_studio_csv,
    "Argilla 2": writer_of(argilla2, "records.json"),
    "Argilla 2, flat": writer_of(argilla2_flat, "records.jsonl"),
    "Argilla 1": writer_of(argilla1, "records.jsonl"),
    "Argilla 1, feedback": writer_of(argilla1_feedback, "records.json"),
    "Argilla 1, feedback records": writer_of(argilla1_records, "records.jsonl"),
    "Prodigy": write_prodigy,
    "doccano": write_doccano,
    "doccano zip": write_doccano_zip,
    "Hugging Face": write_dataset,
    "Hugging Face, Parquet": write_parquet_folder,
}
