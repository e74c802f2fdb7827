"""Fault injection: one fault after the other, for a limited time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from simulation.plan import FaultPlan
    from simulation.world import World


class FaultInjector:
    """Injects the faults of a plan."""

    def __init__(self, world: World, plan: FaultPlan, rng: Random) -> None:
        self.count = 0
        self._world = world
        self._plan = plan
        self._rng = rng

    async def run(self) -> None:
        """Inject faults for the planned time; then repair everything."""
        kinds = list(self._plan.kinds)
        weights = list(self._plan.kinds.values())
        loop, rng = self._world.loop, self._rng
        end = loop.time() + self._plan.length_s
        while kinds:
            await asyncio.sleep(rng.expovariate(1) * self._plan.pause_s)
            if loop.time() >= end:
                break
            [kind] = rng.choices(kinds, weights)
            self.count += 1
            self._world.trace.note("faults", kind)
            self._inject(kind)
        self.repair()

    def repair(self) -> None:
        """Repair everything that is broken."""
        world = self._world
        world.trace.note("faults", "are over")
        machine = world.machine
        machine.disk.power_cut = None
        self._repair_disk()
        machine.sync_s_max = world.plan.sync_s_max
        for service in machine.services:
            service.error_rate = 0.0
        world.network.conditions.latency_s = world.plan.latency_s
        if machine.clock.offset_s:
            # Deadlines were computed with the wrong clock, so restart the broker.
            machine.clock.offset_s = 0.0
            machine.stop()
        for link in list(world.network.links.values()):
            if link.is_silent:
                link.reset()

    def _inject(self, kind: str) -> None:
        world, rng = self._world, self._rng
        machine, links = world.machine, list(world.network.links.values())
        match kind:
            case "kill":
                machine.kill()
            case "power":
                machine.lose_power()
            case "power at the disk":
                machine.lose_power_in(rng.randrange(20), is_after=rng.random() < 0.5)
            case "restart":
                machine.stop()
            case "reset a link" if links:
                rng.choice(links).reset()
            case "reset all links":
                for link in links:
                    link.reset()
            case "stall a link" if links:
                rng.choice(links).stall(rng.expovariate(1) * 2)
            case "silence a link" if links:
                rng.choice(links).go_silent()
            case "kill an application":
                rng.choice(world.applications).kill()
            case "clock jump":
                machine.clock.offset_s += rng.choice((-1, 1)) * 10 ** rng.uniform(0, 6)
            case _:
                self._inject_lasting(kind)

    def _inject_lasting(self, kind: str) -> None:
        """Inject a fault that lasts for a while."""
        world, rng = self._world, self._rng
        machine, later = world.machine, world.loop.call_later
        seconds = rng.expovariate(1) * 2
        match kind:
            case "failing writes":
                machine.disk.failing |= {
                    "write",
                    rng.choice(("create", "truncate", "remove")),
                }
                later(seconds, self._repair_disk)
            case "failing syncs":
                machine.disk.failing |= {rng.choice(("sync", "sync_directory"))}
                later(seconds, self._repair_disk)
            case "full disk":
                machine.disk.is_full = True
                later(seconds, self._repair_disk)
            case "slow disk":
                machine.sync_s_max = rng.choice((0.2, 1.0))
            case "slow network":
                world.network.conditions.latency_s = rng.choice((0.05, 0.3))
            case "no objects":
                error_rate = rng.choice((0.2, 1.0))
                for service in (machine.object_service, machine.remote_service):
                    service.error_rate = error_rate
                    later(seconds, setattr, service, "error_rate", 0.0)
            case "no metadata":
                machine.metadata_service.error_rate = rng.choice((0.2, 1.0))
                later(seconds, setattr, machine.metadata_service, "error_rate", 0.0)

    def _repair_disk(self) -> None:
        disk = self._world.machine.disk
        disk.failing.clear()
        disk.is_full = False
