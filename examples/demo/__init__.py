"""
A demonstration of pydanube with real input and a proof.

It starts a broker, publishes telemetry and source code of this machine, writes both
into Delta tables with Spark, and checks that nothing was lost or duplicated.
"""
