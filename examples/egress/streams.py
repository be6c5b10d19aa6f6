"""Prints how many streams the proxy beside this workload has handed on, and closed."""

from urllib.request import urlopen

with urlopen("http://127.0.0.1:15020/metrics") as page:
    lines = page.read().decode().splitlines()

print(*(line for line in lines if line.startswith("myriad_streams_total")), sep="\n")
