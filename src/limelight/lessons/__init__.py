"""Lessons: the course as files that need nothing of limelight to run.

    write_lessons("lessons.html")              all of it in one file, from a disk or a mail
    write_lessons("lab.html", part="lab")      one interactive alone
    write_site("folder")                       static pages for any web host, a page for each part

The pages are the studio's own Learn. What it asks the studio for lies in the file beforehand, and
answers to exercises are checked in the page; what needs a running engine says so.
"""

from limelight.lessons.data import PARTS, lessons_data
from limelight.lessons.page import lessons, write_lessons, write_site

__all__ = ["PARTS", "lessons", "lessons_data", "write_lessons", "write_site"]
