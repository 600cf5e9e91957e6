"""The usage of an answer (tokens, seconds), as it is stored with its turn and shown beside it."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from django.utils.formats import number_format
from django.utils.translation import gettext as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and seconds over all requests of an answer, and how the last one ended, as OpenTelemetry names it (`stop`,
    `length`, `content_filter` …). None if unknown.
    """

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None
    finish_reason: str | None = None
    # The part of the seconds in which a thinking model showed its reasoning.
    thought_seconds: float | None = None
    # Of the earlier messages (with their answers): how many the model did not get, and how many it did, if not all.
    not_sent: int | None = None
    sent: int | None = None
    # How many tokens the model's server counts for each of our own count (`chat.agent.prompt.tokens_of`).
    token_ratio: float | None = None

    @classmethod
    def of(cls, data: dict[str, Any] | None) -> Self:
        """From `Turn.usage`; unknown keys are ignored."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in (data or {}).items() if name in names})

    def after(self, earlier: "Usage") -> "Usage":
        """For a continued answer: the sums, and the end of the last part."""
        return Usage(
            model=self.model or earlier.model,
            input_tokens=_sum(earlier.input_tokens, self.input_tokens),
            output_tokens=_sum(earlier.output_tokens, self.output_tokens),
            seconds=_sum(earlier.seconds, self.seconds),
            finish_reason=self.finish_reason,
            thought_seconds=_sum(earlier.thought_seconds, self.thought_seconds),
            not_sent=self.not_sent,
            sent=self.sent,
            token_ratio=self.token_ratio or earlier.token_ratio,
        )

    def as_data(self) -> dict[str, Any]:
        """For `Turn.usage`."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def for_readers(self) -> dict[str, Any]:
        """Without what only counts for the next prompt."""
        return {name: value for name, value in self.as_data().items() if name != "token_ratio"}

    def in_words(self) -> str:
        """A line for people; empty if nothing is known."""
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


def thought_in_words(seconds: float | None) -> str:
    """The label of an answer's folded reasoning."""
    return _("Thought") if seconds is None else _("Thought for %(seconds)s s") % {"seconds": max(1, round(seconds))}


def together(earlier: dict[str, Any] | None, later: dict[str, Any] | None) -> dict[str, Any]:
    """For `Turn.usage` of a continued answer."""
    return Usage.of(later).after(Usage.of(earlier)).as_data()


def _sum(earlier: Any, later: Any) -> Any:
    return later if earlier is None else earlier if later is None else earlier + later
