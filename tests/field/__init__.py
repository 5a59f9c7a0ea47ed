"""Tests of the report on published speeds."""
