"""The work behind the answers: photos through the backbone, and one model that is read and changed."""
