"""A module that no loader may ever import."""

raise AssertionError("a hostile file had this module imported")
