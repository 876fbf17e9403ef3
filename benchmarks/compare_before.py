from collections import defaultdict

BEFORE = defaultdict(dict)
