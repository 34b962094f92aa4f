import runnel from './index.js';

export const {
  Engine,
  Model,
  Session,
  Stream,
  Piece,
  Group,
  Pieces,
  ModelFile,
  RunnelError,
  AbortError,
  cache,
  renderTemplate,
  inspectTemplate,
  readSessionNote,
  architectures,
  nameOf,
  constants,
  version,
} = runnel;
export default runnel;
