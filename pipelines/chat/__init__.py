"""The chat set: raw dialogs to normalised, checked, deduplicated ones, and their serialised form.

roles.py        what the role names of all sets mean
normalise.py    one raw dialog to alternating user and assistant messages, or a reason
dialogs.py      stage ``dialogs/<source>``: normalisation, chunk by chunk
repeats.py      stage ``dialogs/chat``: exact and near repeats removed, over all sources
serialise.py    a dialog as token ids with its mask
"""
