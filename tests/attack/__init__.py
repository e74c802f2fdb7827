"""
Attacks on a real broker: fuzzers, floods, hostile schemas, damaged files.

A campaign is one module with a coroutine ``attack(target, chance)``, which plays
one round.  ``make test`` plays a few rounds of each campaign; ``make attack
MINUTES=10`` plays rounds of all campaigns in turn until the time is over.

A round is a function of its seed, so ``make attack ONLY=name SEED=7 ROUND=12`` plays
a failed round again.
"""
