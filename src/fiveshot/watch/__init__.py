"""Watch a folder or a camera: recognize new photos, let them vote, and report to files, programs and MQTT."""
