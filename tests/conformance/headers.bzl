"""The headers that a library's users see, for a test that reads them."""

def _public_headers(ctx):
    all = ctx.attr.dep[CcInfo].compilation_context.headers.to_list()
    ours = [f for f in all if not f.owner.workspace_name]
    return [DefaultInfo(runfiles = ctx.runfiles(files = ours))]

public_headers = rule(
    implementation = _public_headers,
    attrs = {"dep": attr.label(mandatory = True, providers = [CcInfo])},
    doc = "All headers of this workspace that `dep` brings along.",
)
