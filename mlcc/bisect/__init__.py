"""Search for the pass, the change and the kernel that make a module compute something else.

Delta debugging of the changes that a pass makes follows Zeller, "Yesterday, my program worked. Today, it does not.
Why?", 1999.
"""
