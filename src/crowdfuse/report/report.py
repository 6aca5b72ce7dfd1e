"""The `Report` object: one set of figures, written as HTML, Markdown and JSON, and shown in notebooks."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdfuse.io.files import nonfinite_to_none, write_text
from crowdfuse.report.html_page import render_html
from crowdfuse.report.item_previews import ItemPreview
from crowdfuse.report.markdown_page import render_markdown

REPORT_MARKER = "crowdfuse report"  # in the first bytes of each file of a report


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """A report on labels and, if there is a model, on the model that was trained on them.

    Reports are created by the method `report` of a classifier and by `crowdfuse.report_labels`. In a notebook, the
    report is displayed as a page.

    Parameters
    ----------
    facts : dict
        All numbers and texts of the report, as `to_json` writes them.
    previews : dict of int to dict
        Preview of each item that the report shows: a thumbnail, the text, or the most unusual features. The keys are
        the rows of the items. Previews appear only in the HTML page.

    Attributes
    ----------
    facts : dict
        All numbers and texts of the report. Unknown values are None or NaN (`null` in JSON). The main keys are `data`,
        `training`, `accuracy` (on gold), `annotators`, `annotator_details`, `class_confusion`, `disputed`, `ambiguous`
        and `mislabelled` (items to check), and `suspicious` (labels that are probably wrong).
    previews : dict of int to dict
        The previews of the items shown, as in the parameter `previews`.

    See Also
    --------
    crowdfuse.report_labels : Creates a report on labels without inputs or a model.

    Examples
    --------
    >>> import crowdfuse
    >>> report = crowdfuse.report_labels([["cat", "cat", "dog"], ["dog", "dog", "dog"], ["cat", "cat", "cat"]])
    >>> report.facts["data"]["n_labels"]
    9
    >>> report.to_markdown().splitlines()[2]
    '# Report on labels by dawid-skene'
    """

    facts: dict[str, Any]
    previews: dict[int, ItemPreview]

    def to_html(self) -> str:
        """Return the report as one HTML page that needs no network and no other files.

        Returns
        -------
        str
            The page, with its style, script, charts and thumbnails inside.
        """
        return render_html(self.facts, self.previews)

    def to_markdown(self) -> str:
        """Return the report as Markdown, with the numbers of the HTML page, but without charts and thumbnails.

        Returns
        -------
        str
            The Markdown text.
        """
        return render_markdown(self.facts)

    def to_json(self) -> str:
        """Return `facts` as JSON; NaN and infinity become `null`.

        Returns
        -------
        str
            The JSON text.
        """
        return json.dumps(nonfinite_to_none(self.facts), indent=2, ensure_ascii=False) + "\n"

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the report as `.html`, `.md` and `.json` files next to each other.

        Parameters
        ----------
        path : str or Path
            The `.html` file to write. The `.md` and `.json` files get the same name with another extension.
        overwrite : bool, default=False
            Whether to replace existing files that are not reports. Earlier reports are always replaced.

        Returns
        -------
        Path
            The path of the HTML page.

        Raises
        ------
        ValueError
            If `path` does not end in `.html`.
        FileExistsError
            If `overwrite` is False, and one of the three files exists but is not an earlier report.
        IsADirectoryError
            If one of the three paths is a folder.
        """
        paths = report_files(Path(path))
        for file in paths:
            refuse_overwriting(file, force=overwrite)
        texts = self.to_html(), self.to_markdown(), self.to_json()
        for file, text in zip(paths, texts, strict=True):
            write_text(file, text)
        return paths[0]

    def _repr_html_(self) -> str:
        """Return the page inside an iframe, so that its style and the notebook's do not mix."""
        return (
            f'<iframe title="{html.escape(self.facts["title"])}" sandbox="allow-scripts" '
            'style="width:100%;height:44rem;border:1px solid #8884;border-radius:8px" '
            f'srcdoc="{html.escape(self.to_html())}"></iframe>'
        )

    def __repr__(self) -> str:
        data = self.facts["data"]
        return (
            f"Report({data['n_items']:,} items, {data['n_annotators']:,} annotators, {data['n_labels']:,} labels; "
            ".save('report.html') writes it)"
        )


def report_files(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the HTML, Markdown and JSON files of a report.

    Parameters
    ----------
    path : Path
        The HTML file.

    Returns
    -------
    tuple of three Path

    Raises
    ------
    ValueError
        If `path` does not end in `.html`.

    Examples
    --------
    >>> [file.name for file in report_files(Path("report.html"))]
    ['report.html', 'report.md', 'report.json']
    """
    if path.suffix.lower() != ".html":
        raise ValueError(
            f"{path}: the name of a report must end in .html, such as report.html (the .md and .json files are "
            "written next to it)"
        )
    return path, path.with_suffix(".md"), path.with_suffix(".json")


def refuse_overwriting(path: Path, *, force: bool) -> None:
    """Raise an error if writing `path` would replace something that is not an earlier report.

    Parameters
    ----------
    path : Path
        The file to be written.
    force : bool
        Whether to allow replacing any file. A folder is never replaced.

    Raises
    ------
    IsADirectoryError
        If `path` is a folder.
    FileExistsError
        If `path` exists and is not an earlier report, and `force` is False.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    if not path.exists() or force:
        return
    with path.open("rb") as file:
        if REPORT_MARKER.encode() not in file.read(400):
            raise FileExistsError(
                f"{path} already exists and is not an earlier report; choose another name, or replace the file with "
                "--force on the command line or overwrite=True in Python"
            )
