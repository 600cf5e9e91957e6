"""What an answer took, as it is kept with its turn and shown beside it."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from pydantic.alias_generators import to_camel


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an answer took: tokens and seconds over all its requests, and how the last one ended, as OpenTelemetry
    names it (`stop`, `length`, `content_filter` …). None where it is not known."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None
    finish_reason: str | None = None
    # Of the seconds, those in which a thinking model showed what it thought.
    thought_seconds: float | None = None

    @classmethod
    def of(cls, data: dict[str, Any] | None) -> Self:
        """From `Turn.usage`; what is unknown there is passed over."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in (data or {}).items() if name in names})

    def after(self, earlier: "Usage") -> "Usage":
        """Of an answer that was continued: the sums, and the end of the last part."""
        return Usage(
            model=self.model or earlier.model,
            input_tokens=_sum(earlier.input_tokens, self.input_tokens),
            output_tokens=_sum(earlier.output_tokens, self.output_tokens),
            seconds=_sum(earlier.seconds, self.seconds),
            finish_reason=self.finish_reason,
            thought_seconds=_sum(earlier.thought_seconds, self.thought_seconds),
        )

    def as_data(self) -> dict[str, Any]:
        """For `Turn.usage`."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def in_camel_case(self) -> dict[str, Any]:
        """For the API."""
        return {to_camel(name): value for name, value in self.as_data().items()}

    def in_words(self) -> str:
        """A line for people; empty where nothing is known."""
        tokens = (
            _("%(read)s tokens in, %(written)s out")
            % {
                "read": number_format(self.input_tokens, force_grouping=True),
                "written": number_format(self.output_tokens or 0, force_grouping=True),
            }
            if self.input_tokens is not None
            else ""
        )
        seconds = f"{number_format(round(self.seconds, 1), 1)} s" if self.seconds is not None else ""
        return " · ".join(each for each in (self.model, tokens, seconds, self.finish_reason) if each)


def together(earlier: dict[str, Any] | None, later: dict[str, Any] | None) -> dict[str, Any]:
    """For `Turn.usage`, of an answer that was continued."""
    return Usage.of(later).after(Usage.of(earlier)).as_data()


def _sum(earlier: Any, later: Any) -> Any:
    return later if earlier is None else earlier if later is None else earlier + later
