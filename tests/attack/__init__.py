"""
Attacks on a real broker: fuzzers, floods, hostile schemas, damaged files.

A campaign is a module with a coroutine ``attack(target, rng)``, which runs one round.
``make test`` runs a few rounds of each campaign; ``make attack MINUTES=10`` runs
rounds of all campaigns in turn for that time.

A round depends only on its seed, so ``make attack ONLY=name SEED=7 ROUND=12`` repeats a
failed round.
"""
