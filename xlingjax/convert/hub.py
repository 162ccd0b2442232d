"""A folder in Hugging Face's form, given to the hub."""

from pathlib import Path

from xlingjax.errors import UserError
from xlingjax.runtime.machine import first_line


class Upload:
    """Where a folder will go. Made before the folder is: what would refuse it is told at once.

    Nothing is sent before `send`. A repository that is not there yet is made private; its page on
    the hub opens it to others.
    """

    def __init__(self, name: str):
        """name: USER/NAME. Raises UserError: no package, an impossible name, no token."""
        try:
            # Here, since a folder on disk needs no package for it.
            import huggingface_hub
            from huggingface_hub.utils import validate_repo_id
        except ImportError:
            raise UserError(f"--push {name} needs pip install 'xlingjax[interop]'") from None
        try:
            validate_repo_id(name)
            _, _ = name.split("/")
        except ValueError as error:
            raise UserError(
                f"--push {name}: give USER/NAME, or ORGANISATION/NAME, as on the hub"
                f" ({first_line(error)})"
            ) from None
        if not huggingface_hub.get_token():
            raise UserError(
                f"--push {name}: the hub wants a token: `hf auth login`, or set HF_TOKEN to one"
                " that may write"
            )
        self._name = name

    def send(self, folder: str | Path) -> str:
        """Makes the repository, if it is not there, and sends all files of `folder` in one commit;
        a line that says where. Raises UserError where the hub refuses or cannot be reached."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HTTPError

        api = HfApi()
        try:
            api.create_repo(self._name, private=True, exist_ok=True)
            commit = api.upload_folder(
                repo_id=self._name, folder_path=folder, commit_message="xlingjax export"
            )
        # No way to the hub is an HTTPError or an OSError, by the hub's version.
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise UserError(
                f"--push {self._name}: {first_line(error)}; {folder} is whole: `hf upload"
                f" {self._name} {folder}` sends it"
            ) from None
        return f"pushed to {commit.commit_url}"
