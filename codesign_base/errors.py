"""The two exceptions that users meet, and that every package raises or derives from."""


class InputError(ValueError):
    """The input is wrong; the message names it, its offending value and the remedy.

    The command line prints the message and exits with status 2.

    Parameters
    ----------
    message : str
    fields : tuple of str, optional
        Names of arguments in the message, in whose place the command line has its options.

    Examples
    --------
    >>> import topoopt as to
    >>> try:
    ...     to.Cluster(servers=16, degree=4, bandwidth="100 parsecs")
    ... except to.InputError as wrong:
    ...     print(str(wrong).partition(";")[0])
    bandwidth '100 parsecs' has the unknown unit 'parsecs'
    """

    def __init__(self, message: object = "", *, fields: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.fields = fields

    def __str__(self) -> str:
        """Return the message as one line: names from files may hold breaks and control letters."""
        text = super().__str__()
        if text.isprintable():
            return text
        plain = "".join(letter if letter.isprintable() else " " for letter in text)
        return " ".join(plain.split())


class InfeasibleError(InputError):
    """The input is well formed, but nothing can satisfy it (memory, degree, budget).

    The message says by how much it fails and what would help.

    Examples
    --------
    >>> import topoopt as to
    >>> tiny = to.Server(gpus=1)
    >>> job = to.Job(to.load_transformer("llama3-70b"), server=tiny, global_batch=8)
    >>> try:
    ...     to.co_optimize(job, to.Cluster(servers=2, degree=1, bandwidth="100Gbps"))
    ... except to.InfeasibleError as impossible:
    ...     print("too large" if "memory" in str(impossible) else impossible)
    too large
    """
