"""Libraries that the system provides."""

def system_library(name):
    """Declares @name: a Debian library below /usr, described by third_party/name.BUILD."""
    native.new_local_repository(
        name = name,
        path = "/usr",
        build_file = "//third_party:%s.BUILD" % name,
    )
