/** Errors of the client. Messages say what to do, and never repeat a reward. */

/** An argument is not valid; nothing was sent. */
export class ParameterError extends Error {
  override name = "ParameterError";
}

/** The service answered with an error, or with something else than expected. */
export class ServiceError extends Error {
  override name = "ServiceError";

  constructor(
    message: string,
    /** The HTTP status; 0 without an answer. */
    readonly status: number = 0,
  ) {
    super(message);
  }
}

/** The service did not answer in time. */
export class ServiceUnavailableError extends ServiceError {
  override name = "ServiceUnavailableError";
}

/** The API key is missing, unknown, expired, or lacks the right. */
export class ServiceKeyError extends ServiceError {
  override name = "ServiceKeyError";
}

/** The experiment or the decision does not exist. */
export class ServiceLookupError extends ServiceError {
  override name = "ServiceLookupError";
}

/** The request conflicts with what exists: the message says with what. */
export class ServiceConflictError extends ServiceError {
  override name = "ServiceConflictError";
}

/** The reward window of the decision is over. */
export class WindowOverError extends ServiceError {
  override name = "WindowOverError";
}

/** The service refused the request as invalid. */
export class ServiceRequestError extends ServiceError {
  override name = "ServiceRequestError";
}
