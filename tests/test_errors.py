# SPDX-License-Identifier: Apache-2.0
"""An error of this package tells whose value it is, its name, what came and what would be right."""

from fdg_plugins.errors import DataError, SettingsError


def test_the_fields_of_an_error_make_its_sentence() -> None:
    error = SettingsError(site="site-1", field="kappa", value=1.5, expected="a number from 0 to 1")
    assert str(error) == "site-1: kappa is 1.5, expected a number from 0 to 1."
    assert (error.site, error.field, error.value, error.expected) == ("site-1", "kappa", 1.5, "a number from 0 to 1")


def test_others_read_only_the_category_unless_the_text_is_meant_for_them() -> None:
    secret = DataError("/data/patient.png cannot be read.")
    assert "patient" not in secret.public
    assert DataError("2 images cannot be read.", public=True).public == "2 images cannot be read."
