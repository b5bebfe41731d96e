from muster.results.privacy_statement import keep_released, state_privacy

FACTS = {
    "private": True,
    "unit": "clients",
    "protect": "everyone",
    "clip": 0.5,
    "noise": 6.3751,
    "delta": 1e-3,
    "releases": 60,
    "epsilon_objective": 4.0,
    "epsilon_others": 3.6,
}


def test_a_run_says_what_it_promises_and_to_whom():
    assert state_privacy({}) == ""
    assert state_privacy({"privacy": FACTS}) == (
        "private: epsilon 4.00 for a client of the objective, 3.60 for any other client (delta "
        "0.001; noise 6.375 times the clip 0.5, 60 releases)"
    )
    seeded = state_privacy({"privacy": {**FACTS, "private": False}})
    assert seeded.startswith("not private: the noise is of the seed and can be computed again")
    others = {k: v for k, v in FACTS.items() if k != "epsilon_objective"}
    said = state_privacy({"privacy": {**others, "protect": "others"}})
    assert said.startswith("private: epsilon 3.60 for any other client (")
    assert said.endswith("clients of the objective are not protected")


def test_of_a_round_only_what_was_released_is_kept():
    row = {"round": 3, "eps": 0.2, "reference_loss": 1.5, "joined": 9, "loss": 0.4, "seconds": 1.0}
    row |= {"releases": 3, "epsilon_objective": 1.0, "epsilon_others": 0.5, "test_accuracy": 0.9}
    assert list(keep_released(row)) == [
        *("round", "eps", "reference_loss", "releases", "epsilon_objective", "epsilon_others")
    ]
    del row["epsilon_objective"]  # F(w) is the priority clients' own, exact
    assert list(keep_released(row)) == ["round", "eps", "releases", "epsilon_others"]
