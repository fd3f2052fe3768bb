"""/api/surveys: which surveys there are, all heads of one, and one head over all its texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limelight.studio.answers import NotFound
from limelight.studio.api.asked import Index, OfCapture, OfSite
from limelight.studio.endpoint import Endpoint, Nothing
from limelight.studio.work import Cancel
from limelight.views import surveys as views
from limelight.views.surveys import SurveyHead, SurveyInfo, SurveySummary

if TYPE_CHECKING:
    from limelight.studio.studio import Studio


class OfSurveyHead(OfSite, frozen=True):
    head: Index


def surveys(studio: Studio, _: Nothing, cancel: Cancel) -> list[SurveySummary]:
    return [views.summary(found, name) for name, found in studio.shelf.surveys(cancel)]


def survey(studio: Studio, asked: OfCapture, _: Cancel) -> SurveyInfo:
    return views.facts(studio.shelf.survey(asked.id), asked.id)


def survey_head(studio: Studio, asked: OfSurveyHead, _: Cancel) -> SurveyHead:
    found = studio.shelf.survey(asked.id)
    there = asked.site < len(found.sites) and asked.head < found.counts[asked.site]
    if not there:
        raise NotFound(f"there is no head {asked.head} at site {asked.site} of {asked.id}")
    return views.head(found, asked.site, asked.head)


ENDPOINTS = (
    Endpoint("/api/surveys", surveys, Nothing, list[SurveySummary],
             "The surveys in the folders of this studio.", lane="look"),
    Endpoint("/api/surveys/{id}", survey, OfCapture, SurveyInfo,
             "All heads of a survey: health and kinds.", lane="look"),
    Endpoint("/api/surveys/{id}/sites/{site}/heads/{head}", survey_head, OfSurveyHead, SurveyHead,
             "One head over all texts: kinds with errors, patterns, tokens, examples.",
             lane="look"),
)  # fmt: skip
