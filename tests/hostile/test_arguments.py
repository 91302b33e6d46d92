"""Odd arguments are answered as they are meant, or refused in a sentence of ours: `arguments` has the table."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import pytest
import torch

from tests.hostile.argument_fuzzer import calls_of, said_by_us, tried
from tests.hostile.arguments import METHODS, MODELS, ODD, Odd, attribute, knows


def check(called: str, odd: Odd, **arguments: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tolerance that is not reached
        if odd.refused is None:
            meant = dict.fromkeys(arguments, odd.means)
            torch.testing.assert_close(attribute(called, **arguments), attribute(called, **meant), rtol=1e-4, atol=1e-5)
            return
        with pytest.raises((ValueError, TypeError)) as error:
            attribute(called, **arguments)
    assert said_by_us(error.value), repr(error.value)
    assert re.search(odd.refused, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("argument", ODD)
@pytest.mark.parametrize("method", METHODS)
def test_odd_arguments(method, argument):
    failed = {}
    for odd in ODD[argument] if knows(method, argument) else ():
        if odd.concerns(method):
            try:
                check(method, odd, **{argument: odd.value})
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (all that fail are shown)
                failed[odd.name] = f"{type(error).__name__}: {error}"
    assert not failed


@pytest.mark.parametrize("method", METHODS)
def test_odd_models(method):
    failed = {}
    for odd in MODELS:
        if odd.concerns(method):
            try:
                check(method, odd, model=odd.value)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (all that fail are shown)
                failed[odd.name] = f"{type(error).__name__}: {error}"
    assert not failed


def test_there_are_enough_calls():
    calls = [odd for method in METHODS for argument, some in ODD.items() if knows(method, argument) for odd in some
             if odd.concerns(method)]  # fmt: skip
    assert len(calls) > 700


def test_several_odd_arguments():
    """A few seconds of what `make fuzz` does for as long as it is told."""
    findings = [finding for call in calls_of(0, 400) if (finding := tried(call))]
    assert not findings, "\n".join(findings)


def test_the_fuzzer_sees_wrong_values_and_errors_of_others():
    plain = next(call for call in calls_of(1, 400) if call.method == "ExactShapley" and not call.refused)
    assert not tried(plain)
    assert "wrong" in tried(replace(plain, wanted=plain.wanted + 1))
    assert "RuntimeError" in tried(replace(plain, arguments={**plain.arguments, "inputs": Broken()}))


class Broken(torch.Tensor):
    """A tensor of which torch complains wherever it is used."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("broken")
