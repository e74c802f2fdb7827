"""What goes wrong: one disturbance after the other, until the weather is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from simulation.plan import WeatherPlan
    from simulation.world import World


class Weather:
    """Disturbs a world as planned."""

    def __init__(self, world: World, plan: WeatherPlan, chance: Random) -> None:
        self.count = 0
        self._world = world
        self._plan = plan
        self._chance = chance

    async def run(self) -> None:
        """Disturb, until the plan's time is over; then heal everything."""
        kinds = list(self._plan.kinds)
        weights = list(self._plan.kinds.values())
        loop, chance = self._world.loop, self._chance
        end = loop.time() + self._plan.length_s
        while kinds:
            await asyncio.sleep(chance.expovariate(1) * self._plan.pause_s)
            if loop.time() >= end:
                break
            [kind] = chance.choices(kinds, weights)
            self.count += 1
            self._world.trace.note("weather", kind)
            self._disturb(kind)
        self.heal()

    def heal(self) -> None:
        """Whatever was broken works again."""
        world = self._world
        world.trace.note("weather", "is fine")
        machine = world.machine
        machine.disk.power_cut = None
        self._mend_disk()
        machine.sync_s_max = world.plan.sync_s_max
        machine.object_service.trouble = machine.metadata_service.trouble = 0.0
        world.network.climate.latency_s = world.plan.latency_s
        if machine.clock.offset_s:
            # What is due when was decided by the clock that was wrong.
            machine.clock.offset_s = 0.0
            machine.stop()
        for link in list(world.network.links.values()):
            if link.is_silent:
                link.reset()

    def _disturb(self, kind: str) -> None:
        world, chance = self._world, self._chance
        machine, links = world.machine, list(world.network.links.values())
        match kind:
            case "kill":
                machine.kill()
            case "power":
                machine.lose_power()
            case "power at the disk":
                machine.lose_power_in(
                    chance.randrange(20), is_after=chance.random() < 0.5
                )
            case "restart":
                machine.stop()
            case "reset a link" if links:
                chance.choice(links).reset()
            case "reset all links":
                for link in links:
                    link.reset()
            case "stall a link" if links:
                chance.choice(links).stall(chance.expovariate(1) * 2)
            case "silence a link" if links:
                chance.choice(links).go_silent()
            case "kill an application":
                chance.choice(world.applications).kill()
            case "clock jump":
                machine.clock.offset_s += chance.choice((-1, 1)) * 10 ** chance.uniform(
                    0, 6
                )
            case _:
                self._impair(kind)

    def _impair(self, kind: str) -> None:
        """What lasts for a while."""
        world, chance = self._world, self._chance
        machine, later = world.machine, world.loop.call_later
        seconds = chance.expovariate(1) * 2
        match kind:
            case "failing writes":
                machine.disk.failing |= {
                    "write",
                    chance.choice(("create", "truncate", "remove")),
                }
                later(seconds, self._mend_disk)
            case "failing syncs":
                machine.disk.failing |= {chance.choice(("sync", "sync_directory"))}
                later(seconds, self._mend_disk)
            case "full disk":
                machine.disk.is_full = True
                later(seconds, self._mend_disk)
            case "slow disk":
                machine.sync_s_max = chance.choice((0.2, 1.0))
            case "slow network":
                world.network.climate.latency_s = chance.choice((0.05, 0.3))
            case "no objects":
                machine.object_service.trouble = chance.choice((0.2, 1.0))
                later(seconds, setattr, machine.object_service, "trouble", 0.0)
            case "no metadata":
                machine.metadata_service.trouble = chance.choice((0.2, 1.0))
                later(seconds, setattr, machine.metadata_service, "trouble", 0.0)

    def _mend_disk(self) -> None:
        disk = self._world.machine.disk
        disk.failing.clear()
        disk.is_full = False
