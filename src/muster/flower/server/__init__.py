"""The server app: enrolment, column fitting, requests to remote clients."""
