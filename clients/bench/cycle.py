import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python/src"))
import fencelock

client, times = fencelock.Client(), []
while len(times) < 4000:
    begun = time.perf_counter()
    with client.lock("kept"):
        pass
    times.append((time.perf_counter() - begun) * 1e6)
print(json.dumps(times))
