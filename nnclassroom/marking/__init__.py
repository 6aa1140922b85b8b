"""Marking a class: submissions, verdicts, points, similarity of answers, pages."""
